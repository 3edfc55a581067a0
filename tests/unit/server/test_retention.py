"""Which conversations go, and that only these do."""

from __future__ import annotations

import asyncio
import io
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from agent_core.errors import EventStoreError
from agent_core.testing.store_contract import new_events
from agent_core.troubles import Trouble
from server.auth.identity import Identity
from server.cli.doctor import doctor
from server.conversation_manager import retention as retention_module
from server.conversation_manager.conversation_archives import export_archive
from server.conversation_manager.retention import (
    LAST_SEEN,
    MOST_AT_ONCE,
    Doomed,
    Presence,
    Retention,
    RetentionLimits,
    doomed,
    presence_at_start,
)
from server.db.repositories.conversations import ConversationUse
from server.metrics import ServerMetrics
from server.session.unfinished import seed_of
from tests.unit.server.conftest import House, MakeHouse
from tests.waiting import until

NOW = datetime.now(UTC)
LONG_AGO = NOW - timedelta(days=9000)


def ago(days: float) -> datetime:
    return NOW - timedelta(days=days)


def used(name: str, days: float, user: str = "", state: str | None = "awaiting_user_input") -> ConversationUse:
    return ConversationUse(name, user, ago(days), state)


def test_each_limit_takes_what_was_used_longest_ago_and_no_more() -> None:
    uses = [used("e", 40), used("d", 4), used("c", 3, "ann"), used("b", 2), used("a", 1, "ann")]
    sizes = {"a": 10, "b": 10, "c": 10, "c~helper": 15, "d": 10, "e": 10, "unknown": 1000}
    limits = {
        RetentionLimits(days=30): ["e"],
        RetentionLimits(user_conversations=1): ["e", "d", "c"],
        RetentionLimits(user_conversations=2): ["e"],
        RetentionLimits(user_bytes=20): ["e", "c"],
        RetentionLimits(bytes_in_all=64): ["e"],
        RetentionLimits(bytes_in_all=20): ["e", "d", "c"],
        RetentionLimits(days=3.5, user_conversations=1): ["e", "d", "c"],
        RetentionLimits(): [],
    }
    for limit, ids in limits.items():
        assert [one.id for one in doomed(uses, sizes, limit, NOW)] == ids, limit
    assert doomed(uses, sizes, RetentionLimits(days=30), NOW) == [Doomed("e", "unused for 30 days", ago(40))]


def test_what_works_waits_or_was_just_used_stays_whatever_the_limits() -> None:
    kept = ["running", "user_confirmed", "rate_limited", "loading", "awaiting_user_confirmation"]
    uses = [used(state, 400, state=state) for state in kept] + [used("young", 0.01)]
    uses.insert(0, ConversationUse("in line", "", ago(500), "awaiting_user_input", waits=True))
    strict = RetentionLimits(0.001, 1, 1, 1)
    assert doomed(uses, dict.fromkeys(kept, 1000), strict, NOW) == []
    others = [used(state, 400, state=state) for state in ("stopped", "error", "finished", "paused")]
    assert len(doomed(others, {}, RetentionLimits(days=1), NOW)) == len(others)


def test_after_a_deletion_nothing_is_beyond_the_limits_unless_it_is_to_stay() -> None:
    dice = random.Random(17)
    for _ in range(200):
        uses = [
            used(str(n), days, dice.choice("ab"), dice.choice(["running", "stopped", "stopped"]))
            for n, days in enumerate(sorted((dice.uniform(0.1, 90) for _ in range(30)), reverse=True))
        ]
        sizes = {use.id: dice.randrange(100) for use in uses}
        limits = RetentionLimits(*(dice.choice([0, dice.randrange(1, most)]) for most in (60, 12, 700, 1500)))
        gone = {one.id for one in doomed(uses, sizes, limits, NOW)}
        left = [use for use in uses if use.id not in gone]
        assert doomed(left, sizes, limits, NOW) == []
        assert not [use for use in uses if use.id in gone and use.agent_state == "running"]


@asynccontextmanager
async def retaining(house: House, *, seen_at: datetime | None = NOW, **values: Any) -> AsyncIterator[ServerMetrics]:
    """Retention of a server that was there last at `seen_at`."""
    if seen_at is not None:
        Presence(seen_at, LONG_AGO).note(house.database.data_dir)
    settings = house.manager.parts.settings.model_copy(update={"retention_interval_seconds": 0.01, **values})
    metrics = ServerMetrics()
    async with Retention(settings, house.database, house.manager, metrics):
        yield metrics


async def test_what_is_in_use_stays_and_the_rest_goes_with_everything(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for name in ("old", "connected", "loaded", "new"):
        await house.new(name, created_at=NOW if name == "new" else ago(40))
        await house.database.events.append(name, new_events(b"x" * 2_000_000))
    await house.start_sandbox("old")
    seed = seed_of(house.database.data_dir, "old")
    seed.parent.mkdir()
    seed.write_bytes(b"files")
    await house.manager.join("connected", "c1", Identity())
    await house.manager.maybe_start_agent_loop("loaded")
    for name in ("connected", "loaded"):
        while await house.state_of(name) != "awaiting_user_input":  # noqa: ASYNC110 - its recorder follows the log
            await asyncio.sleep(0.01)
        await house.database.conversations.update(name, last_updated_at=ago(40))
    async with retaining(house, retention_days=30) as metrics:
        await until(lambda: metrics.troubles(Trouble.RETENTION_REMOVED) == 1)
        await asyncio.sleep(0.05)  # some more rounds
    assert await house.database.conversations.ids() == {"connected", "loaded", "new"}
    assert metrics.troubles(Trouble.RETENTION_REMOVED) == 1
    assert await house.database.events.last_id("old") == -1
    assert not (house.database.data_dir / "blobs/old").exists()
    assert not seed.exists()
    lines = [record.getMessage() for record in caplog.records if record.name == retention_module.__name__]
    assert lines == ["deleted 1 conversations: 1 unused for 30 days; 2 that are in use stay"]


async def test_many_go_in_rounds_of_bounded_size(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention_module, "PAUSE_SECONDS", 0)
    for number in range(2 * MOST_AT_ONCE + 5):
        await house.new(f"c{number}", created_at=ago(10 + number))
    async with retaining(house, retention_user_conversations=2) as metrics:
        await until(lambda: metrics.troubles(Trouble.RETENTION_REMOVED) == 2 * MOST_AT_ONCE + 3)
    assert await house.database.conversations.ids() == {"c0", "c1"}


async def test_what_waits_in_line_or_is_held_back_when_its_turn_to_go_comes_stays(house: House) -> None:
    for name in ("in line", "held"):
        await house.new(name, created_at=ago(40))
    house.manager.guard.is_held = lambda conversation_id: conversation_id == "held"  # type: ignore[method-assign]
    house.manager.queue.is_coming_up = lambda conversation_id: conversation_id == "in line"  # type: ignore[method-assign]
    for name in ("in line", "held"):
        assert not await house.manager.delete(name, unless_used=True)
    assert await house.database.conversations.ids() == {"in line", "held"}


async def test_what_is_being_exported_stays_until_that_is_done(house: House) -> None:
    await house.new("old", created_at=ago(40))
    await house.database.events.append("old", new_events(*[b"{}"] * 450))
    record = await house.database.conversations.get("old")
    assert record is not None
    async with retaining(house, retention_days=30) as metrics:
        parts = [part async for part in _slowly(export_archive(house.database, house.manager, record, with_files=True))]
        assert len(parts) > 2
        await until(lambda: metrics.troubles(Trouble.RETENTION_REMOVED) == 1)


async def _slowly(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for part in parts:
        yield part
        await asyncio.sleep(0.05)  # some rounds


def test_a_start_after_long_or_with_another_clock_begins_the_days_anew(tmp_path: Path) -> None:
    uses, limits = [used("a", 40), used("b", 3)], RetentionLimits(days=30)

    def since(now: datetime, limits: RetentionLimits = limits) -> datetime:
        return presence_at_start(tmp_path, uses, limits, now).since

    assert since(NOW) < ago(3000)  # nothing is noted; a conversation was used three days ago
    assert since(NOW + timedelta(days=5)) == NOW + timedelta(days=5)
    Presence(NOW, LONG_AGO).note(tmp_path)
    assert (tmp_path / LAST_SEEN).stat().st_mode & 0o777 == 0o600
    for days, begins_anew in ((-100, False), (-1, False), (6.9, False), (7.1, True), (3650, True)):
        now = NOW + timedelta(days=days)
        assert (since(now) == now) is begins_anew, days
    # As long as everything that there is gets old: a week at most, a day at least.
    for days, away, begins_anew in ((2, 2.1, True), (2, 1.9, False), (0.01, 0.5, False), (0.01, 1.1, True)):
        now = NOW + timedelta(days=away)
        assert (since(now, RetentionLimits(days=days)) == now) is begins_anew
    # It lasts over the next start, and ends where the clock is set right again.
    wrong = NOW + timedelta(days=3650)
    presence_at_start(tmp_path, uses, limits, wrong).note(tmp_path)
    assert since(wrong + timedelta(days=1)) == wrong
    assert since(NOW) == NOW
    for content in ("", "{}", "[]", '{"seen_at": 1, "since": 2}', '{"seen_at": "2026-01-01", "since": "2026-01-01"}'):
        (tmp_path / LAST_SEEN).write_text(content)
        assert since(NOW) < ago(3000), content


async def test_a_clock_that_is_years_ahead_when_the_server_starts_deletes_nothing_for_its_age(
    house: House, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    await house.new("c", created_at=NOW)
    strict = {"retention_days": 30, "retention_user_mb": 1, "retention_interval_seconds": 0.01}
    await house.database.events.append("c", new_events(b"x" * 2_000_000))
    for days, is_gone in ((3650, False), (3679, False), (3681, True)):
        monkeypatch.setattr(retention_module, "careful_now", lambda days=days: NOW + timedelta(days=days))
        limits = strict if days == 3650 else {**strict, "retention_user_mb": 0}
        async with retaining(house, seen_at=NOW if days == 3650 else None, **limits) as metrics:
            if is_gone:
                Presence(NOW + timedelta(days=3680), NOW + timedelta(days=3650)).note(house.database.data_dir)
                await until(lambda: metrics.troubles(Trouble.RETENTION_REMOVED))
            await asyncio.sleep(0.1)
            assert metrics.troubles(Trouble.RETENTION_REMOVED) == is_gone
    assert caplog.text.count("was away for long") == 2


async def test_one_that_cannot_be_deleted_holds_up_no_other(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        await house.new(f"c{number}", created_at=ago(50 - number))
    delete = house.manager.delete

    async def failing(conversation_id: str, *, unless_used: bool = False) -> bool:
        if conversation_id < "c4":
            raise EventStoreError("its page is damaged")
        return await delete(conversation_id, unless_used=unless_used)

    monkeypatch.setattr(house.manager, "delete", failing)
    async with retaining(house, retention_days=30) as metrics:
        await until(lambda: metrics.troubles(Trouble.RETENTION_REMOVED) == 1)
        assert metrics.troubles(Trouble.RETENTION_FAILED) >= 3
    assert await house.database.conversations.ids() == {"c0", "c1", "c2", "c3"}


async def test_what_was_used_while_others_were_deleted_stays(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was opened, gone on with and left again in between, so that nothing of it is in memory."""
    for number in range(2):
        await house.new(f"c{number}", created_at=ago(50 - number))
    delete = house.manager.delete

    async def slow(conversation_id: str, *, unless_used: bool = False) -> bool:
        await house.database.conversations.update("c1", last_updated_at=NOW)
        return await delete(conversation_id, unless_used=unless_used)

    monkeypatch.setattr(house.manager, "delete", slow)
    async with retaining(house, retention_days=30) as metrics:
        await until(lambda: metrics.troubles(Trouble.RETENTION_REMOVED) == 1)
        await asyncio.sleep(0.05)
    assert await house.database.conversations.ids() == {"c1"}


async def test_a_time_that_is_none_stops_neither_retention_nor_the_list(house: House) -> None:
    for name, days in (("damaged", 60), ("old", 50), ("new", 0)):
        await house.new(name, created_at=ago(days))
    damage = "UPDATE conversations SET created_at = 9000000000000000000, last_updated_at = NULL WHERE id = 'damaged'"
    await house.database.writer.execute(text(damage))
    async with retaining(house, retention_days=30) as metrics:
        await until(lambda: metrics.troubles(Trouble.RETENTION_REMOVED) == 1)
    assert {one.id for one in (await house.database.conversations.list_page(limit=9)).results} == {"damaged", "new"}


async def test_without_limits_nothing_is_ever_deleted(house: House) -> None:
    await house.new("old", created_at=ago(4000))
    async with retaining(house):
        await asyncio.sleep(0.05)
    assert await house.database.conversations.ids() == {"old"}


async def test_sizes_of_users_and_in_all_count_logs_with_payloads_and_sub_agents(house: House) -> None:
    for name, user in (("a1", "ann"), ("a2", "ann"), ("b1", "bob")):
        await house.new(name, user_id=user, created_at=ago({"a1": 9, "a2": 8, "b1": 7}[name]))
        await house.database.events.append(f"{name}~helper", new_events(b"x" * 2_000_000))
    async with retaining(house, retention_user_mb=3) as metrics:
        await until(lambda: metrics.troubles(Trouble.RETENTION_REMOVED) == 1)
    assert await house.database.conversations.ids() == {"a2", "b1"}
    async with retaining(house, retention_total_mb=3) as metrics:
        await until(lambda: metrics.troubles(Trouble.RETENTION_REMOVED) == 1)
    assert await house.database.conversations.ids() == {"b1"}


async def test_a_deletion_that_was_broken_off_is_finished_by_the_next_server(make_house: MakeHouse) -> None:
    """The sandbox is gone, the rows are there: as a kill leaves it."""
    async with make_house() as house:
        await house.new("old", created_at=ago(40))
        await house.start_sandbox("old")
        record = await house.database.conversations.get("old")
        assert record is not None
        await house.manager.parts.sandboxes.destroy(record)
    async with make_house() as house, retaining(house, retention_days=1) as metrics:
        await until(lambda: metrics.troubles(Trouble.RETENTION_REMOVED) == 1)
        assert await house.database.conversations.ids() == set()


async def test_the_doctor_says_what_the_limits_are_and_how_many_would_go_and_which_are_damaged(
    house: House,
) -> None:
    for number in range(3):
        await house.new(f"c{number}", created_at=ago(number))
    settings = house.manager.parts.settings
    await house.database.writer.execute(text("UPDATE conversations SET options = '{bad' WHERE id = 'c1'"))
    out = io.StringIO()
    limited = settings.model_copy(update={"retention_user_conversations": 1, "sandbox": "unconfined"})
    await asyncio.to_thread(doctor, limited, out)
    assert "conversations go that are beyond 1 of a user; of those that are unused now it would be 2" in out.getvalue()
    assert "the records of 1 conversations are damaged, which cannot be opened: c1 (options); " in out.getvalue()
    assert await house.database.conversations.ids() == {"c0", "c1", "c2"}
