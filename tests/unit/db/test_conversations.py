from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agent_core.errors import StaleOwnerError
from agent_core.testing.store_contract import new_events
from server.db.database import Database, open_database
from server.db.engine import DatabaseSettings
from server.db.errors import ConversationExistsError, DatabaseError, InvalidPageError
from server.db.repositories.conversations import ConversationRecord
from tests.unit.db.another_program import another_program
from tests.unit.db.conftest import only_sqlite
from tests.waiting import until

START = datetime(2025, 11, 21, 12, tzinfo=UTC)

FULL = ConversationRecord(
    id="full",
    user_id="ann",
    title="Tïtle 💡",
    created_at=START + timedelta(microseconds=1),
    last_updated_at=START + timedelta(days=1),
    agent_state="running",
    sandbox={"provider": "docker", "container": "abc"},
    trigger="gui",
    selected_repository="owner/name",
    selected_branch="main",
    git_provider="github",
    llm_model="demo/tour",
    accumulated_cost=0.125,
    prompt_tokens=2**40,
    completion_tokens=7,
    pr_number=(3, 14),
    options={"conversation_instructions": "be kind", "image_urls": ["a", "b"]},
)


async def create_many(database: Database, count: int, *, trigger: str | None = None) -> list[str]:
    """So many conversations, each a second younger than the one before; their ids, newest first."""
    ids = [f"{trigger or 'any'}-{n:03}" for n in range(count)]
    for n, name in enumerate(ids):
        created_at = START + timedelta(seconds=n)
        repository = "o/even" if n % 2 == 0 else None
        await database.conversations.create(
            ConversationRecord(id=name, created_at=created_at, trigger=trigger, selected_repository=repository)
        )
    return ids[::-1]


async def pages(database: Database, *, limit: int, trigger: str | None = None) -> list[list[str]]:
    found: list[list[str]] = []
    page_id = None
    while True:
        page = await database.conversations.list_page(limit=limit, page_id=page_id, trigger=trigger)
        found.append([record.id for record in page.results])
        page_id = page.next_page_id
        if page_id is None:
            return found


async def test_everything_about_a_conversation_comes_back_as_it_was(database: Database) -> None:
    await database.conversations.create(FULL)
    minimal = await database.conversations.create(ConversationRecord(id="minimal"))
    assert await database.conversations.get("full") == FULL
    assert await database.conversations.get("minimal") == minimal


async def test_an_unknown_conversation_is_none(database: Database) -> None:
    assert await database.conversations.get("nobody") is None
    assert await database.conversations.update("nobody", title="x") is False
    assert await database.conversations.update("nobody", agent_state="x") is False
    assert await database.conversations.update("nobody") is False
    assert await database.conversations.delete("nobody") is False


async def test_of_many_clients_that_create_the_same_id_at_once_one_succeeds(database: Database) -> None:
    records = [ConversationRecord(id="same", title=f"{n}") for n in range(10)]
    outcomes = await asyncio.gather(*map(database.conversations.create, records), return_exceptions=True)
    won = [outcome for outcome in outcomes if isinstance(outcome, ConversationRecord)]
    assert len(won) == 1
    assert [type(outcome) for outcome in outcomes if outcome is not won[0]] == [ConversationExistsError] * 9
    assert await database.conversations.get("same") == won[0]


async def test_pages_show_every_conversation_once_newest_first(database: Database) -> None:
    ids = await create_many(database, 25)
    found = await pages(database, limit=10)
    assert [len(page) for page in found] == [10, 10, 5]
    assert [name for page in found for name in page] == ids


async def test_a_last_page_that_is_full_says_that_it_is_the_last(database: Database) -> None:
    await create_many(database, 10)
    assert [len(page) for page in await pages(database, limit=5)] == [5, 5]


async def test_conversations_of_the_same_moment_are_neither_lost_nor_shown_twice(database: Database) -> None:
    for n in range(9):
        await database.conversations.create(ConversationRecord(id=f"c{n}", created_at=START))
    found = [name for page in await pages(database, limit=2) for name in page]
    assert found == [f"c{n}" for n in reversed(range(9))]


async def test_conversations_that_come_and_go_between_pages_shift_nothing(database: Database) -> None:
    ids = await create_many(database, 12)
    first = await database.conversations.list_page(limit=5)
    await database.conversations.create(ConversationRecord(id="newer", created_at=START + timedelta(days=1)))
    await database.conversations.delete(ids[2])
    await database.conversations.delete(ids[4])
    second = await database.conversations.list_page(limit=5, page_id=first.next_page_id)
    assert [record.id for record in second.results] == ids[5:10]


async def test_a_list_is_of_one_user_and_of_what_is_asked_for(database: Database) -> None:
    ids = await create_many(database, 10, trigger="gui")
    await create_many(database, 3, trigger="slack")
    await database.conversations.create(FULL)

    async def listed(**filters: object) -> list[str]:
        page = await database.conversations.list_page(limit=100, **filters)  # type: ignore[arg-type] # any filter
        return [record.id for record in page.results]

    assert await listed(trigger="gui") == ids
    assert await listed(trigger="gui", selected_repository="o/even") == ids[1::2]
    assert await listed(trigger="gui", created_after=START + timedelta(seconds=5)) == ids[:4]
    assert await listed(user_id="ann") == ["full"]
    assert await listed(user_id="ann", trigger="slack") == []
    assert len(await listed()) == 13


async def test_a_page_of_nothing_is_empty_and_the_last(database: Database) -> None:
    await create_many(database, 2)
    page = await database.conversations.list_page(limit=0)
    assert (page.results, page.next_page_id) == ([], None)


@pytest.mark.parametrize(
    "page_id", ["", "x", "ÿ", "bm90IGpzb24", "WzFd", "WyIxIiwgMV0", "W10", "W251bGwsIG51bGxd", "a" * 9999]
)
async def test_a_page_id_that_is_none_is_refused(database: Database, page_id: str) -> None:
    with pytest.raises(InvalidPageError, match="page_id is not valid"):
        await database.conversations.list_page(limit=5, page_id=page_id)


async def test_updates_change_what_they_name_and_nothing_else(database: Database) -> None:
    await database.conversations.create(FULL)
    assert await database.conversations.update("full", title="New")
    assert await database.conversations.update("full", sandbox=None, agent_state="paused", pr_number=(1,))
    assert await database.conversations.get("full") == replace(
        FULL, title="New", sandbox=None, agent_state="paused", pr_number=(1,)
    )


async def test_touches_are_seen_at_once_and_written_together_later(database: Database) -> None:
    await database.conversations.create(FULL)
    for n in range(100):
        database.conversations.touch("full", accumulated_cost=n / 4, last_updated_at=START + timedelta(seconds=n))
    expected = replace(FULL, accumulated_cost=24.75, last_updated_at=START + timedelta(seconds=99))
    assert await database.conversations.get("full") == expected
    assert (await database.conversations.list_page(limit=1, user_id="ann")).results == [expected]
    await until(lambda: stored_cost(database) == 24.75)
    assert await database.conversations.get("full") == expected


def stored_cost(database: Database) -> float:
    with another_program(database) as other:
        [cost] = other.execute("SELECT accumulated_cost FROM conversations WHERE id = 'full'").fetchone()
    return float(cost)


async def test_touches_are_written_when_the_database_closes(tmp_path: Path) -> None:
    async with open_database(tmp_path, DatabaseSettings(touch_interval_seconds=1000)) as database:
        await database.conversations.create(FULL)
        database.conversations.touch("full", prompt_tokens=5)
        database.conversations.touch("full", completion_tokens=6)
    async with open_database(tmp_path) as database:
        assert await database.conversations.get("full") == replace(FULL, prompt_tokens=5, completion_tokens=6)


async def test_a_touch_does_not_overtake_a_later_update(tmp_path: Path) -> None:
    async with open_database(tmp_path, DatabaseSettings(touch_interval_seconds=1000)) as database:
        await database.conversations.create(FULL)
        database.conversations.touch("full", llm_model="older", prompt_tokens=5)
        flushing = asyncio.create_task(database.conversations.flush())
        await asyncio.sleep(0)
        database.conversations.touch("full", llm_model="old")
        await database.conversations.update("full", llm_model="new")
        await flushing
        await database.conversations.flush()
        assert await database.conversations.get("full") == replace(FULL, llm_model="new", prompt_tokens=5)


@only_sqlite
async def test_touches_that_cannot_be_written_are_tried_again(database: Database) -> None:
    await database.conversations.create(FULL)
    with another_program(database) as other:
        other.execute("BEGIN IMMEDIATE")
        database.conversations.touch("full", accumulated_cost=1.0)
        with pytest.raises(DatabaseError, match="locked"):
            await database.conversations.flush()
        database.conversations.touch("full", accumulated_cost=2.0)
        other.execute("ROLLBACK")
    assert (await database.conversations.get("full")) == replace(FULL, accumulated_cost=2.0)
    await database.conversations.flush()
    assert stored_cost(database) == 2.0


async def test_touching_an_unknown_or_deleted_conversation_does_not_bring_it_back(database: Database) -> None:
    await database.conversations.create(FULL)
    database.conversations.touch("full", prompt_tokens=5)
    await database.conversations.delete("full")
    database.conversations.touch("full", prompt_tokens=6)
    database.conversations.touch("nobody", prompt_tokens=6)
    await database.conversations.flush()
    assert await database.conversations.get("full") is None
    assert await database.conversations.ids() == set()


async def test_those_to_recover_are_found_by_their_state(database: Database) -> None:
    for n, state in enumerate(["running", "stopped", "awaiting", None, "running"]):
        created_at = START + timedelta(seconds=n)
        await database.conversations.create(ConversationRecord(id=f"c{n}", agent_state=state, created_at=created_at))
    database.conversations.touch("c1", agent_state="running")
    assert [record.id for record in await database.conversations.in_states({"running"})] == ["c0", "c1", "c4"]
    assert await database.conversations.in_states(set()) == []


async def test_deleting_takes_the_log_along_and_fences_its_owner_off(database: Database) -> None:
    await database.conversations.create(FULL)
    epoch = await database.events.claim("full")
    await database.events.append("full", new_events("a", b"x" * 2_000_000), epoch=epoch)
    assert await database.conversations.delete("full") is True
    with pytest.raises(StaleOwnerError):
        await database.events.append("full", new_events("late"), epoch=epoch)
    assert await database.conversations.get("full") is None
    assert await database.events.last_id("full") == -1
    assert await database.events.blobs_in_use() == {}
    await database.conversations.create(FULL)
    assert await database.events.append("full", new_events("b"), epoch=await database.events.claim("full")) == 0


@only_sqlite
async def test_pages_are_found_through_an_index(database: Database) -> None:
    async def listing(**values: str) -> str:
        condition = "".join(f" AND {name} = :{name}" for name in values)
        statement = f"SELECT * FROM conversations WHERE user_id = ''{condition} AND (created_at, id) < (5, 'a')"  # noqa: S608 - our own names
        plan = await database.engines.fetch(
            f"EXPLAIN QUERY PLAN {statement} ORDER BY created_at DESC, id DESC LIMIT 21", **values
        )
        [step] = plan
        return str(step[-1])

    assert "USING INDEX ix_conversations_listing" in await listing()
    assert "USING INDEX ix_conversations_trigger" in await listing(trigger="gui")
    assert "USING INDEX ix_conversations_repository " in await listing(selected_repository="o/n")
    both = await listing(selected_repository="o/n", trigger="gui")
    assert "USING INDEX ix_conversations_repository_trigger" in both


async def test_only_what_may_wait_keeps_its_place_in_the_queue(database: Database) -> None:
    for name, state in (("works", "running"), ("rests", "finished"), ("new", None)):
        await database.conversations.create(ConversationRecord(id=name, agent_state=state, waiting_number=3))
    await database.conversations.forget_places({"running"})
    rows = await database.engines.fetch("SELECT id, waiting_number FROM conversations")
    found = {row[0]: row[1] for row in rows}
    assert found == {"works": 3, "rests": None, "new": None}
