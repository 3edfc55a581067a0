"""The writer when something goes wrong: exactly the right appends fail, and the log goes on without a gap."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from agent_core.errors import STORAGE_UNAVAILABLE, EventStoreError, StaleOwnerError
from agent_core.events.store import NewEvent
from agent_core.testing.store_contract import new_event, new_events, payloads
from server.db.database import DATABASE_FILE, Database, open_database
from server.db.engine import DatabaseSettings
from server.db.errors import DatabaseError
from server.db.event_rows import EventRow
from server.db.writer import Record, Writer
from tests.unit.db.another_program import another_program
from tests.unit.db.conftest import only_sqlite
from tests.waiting import until

SMALL = Record("MessageEvent", "user", None, 0, 1, None, b"x")


async def limit_pages(database: Database, *, spare: int) -> None:
    """Let the database file grow by no more than so many pages, as on a disk that is nearly full."""

    async def apply(connection: AsyncConnection) -> None:
        used = (await connection.execute(text("PRAGMA page_count"))).scalar_one()
        await connection.execute(text(f"PRAGMA max_page_count = {used + spare}"))

    await database.writer.change(apply)


@only_sqlite
async def test_a_full_disk_fails_the_append_with_a_clear_message_and_the_log_goes_on(database: Database) -> None:
    await database.events.append("log", new_events("a"))
    await limit_pages(database, spare=10)
    with pytest.raises(EventStoreError, match="the disk is full"):
        await database.events.append("log", new_events(b"x" * 500_000))
    assert await database.events.append("log", new_events("b")) == 1
    await limit_pages(database, spare=1_000_000)
    assert await database.events.append("log", new_events(b"x" * 500_000)) == 2
    assert await payloads(database.events, "log") == [b"a", b"b", b"x" * 500_000]


@only_sqlite
async def test_a_full_disk_fails_all_of_one_batch_and_none_of_the_next(database: Database) -> None:
    await database.events.append("a", new_events("a"))
    await limit_pages(database, spare=10)
    batch = [database.events.append(log, new_events(b"x" * 100_000)) for log in ("a", "b", "c")]
    outcomes = await asyncio.gather(*batch, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [DatabaseError] * 3
    await limit_pages(database, spare=1_000_000)
    assert await asyncio.gather(*(database.events.append(log, new_events("y")) for log in ("a", "b", "c"))) == [1, 0, 0]


@only_sqlite
async def test_an_append_of_thousands_of_events_on_a_full_disk_leaves_nothing_behind(database: Database) -> None:
    await database.events.append("log", new_events("a"))
    await limit_pages(database, spare=10)
    with pytest.raises(EventStoreError, match="the disk is full"):
        await database.events.append("log", new_events(*[b"x" * 1000] * 2000))
    assert await payloads(database.events, "log") == [b"a"]
    assert await database.events.append("log", new_events("b")) == 1


@only_sqlite
async def test_a_locked_database_fails_the_append_and_names_the_cause(database: Database) -> None:
    with another_program(database) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(EventStoreError, match="another program holds the database locked"):
            await database.events.append("log", new_events("a"))
        with pytest.raises(EventStoreError, match="another program holds the database locked"):
            await database.events.claim("log")
        other.execute("ROLLBACK")
    assert await database.events.append("log", new_events("b")) == 0


@only_sqlite
async def test_a_database_whose_file_was_removed_takes_nothing_more_and_says_so(database: Database) -> None:
    await database.events.append("log", new_events("before"))
    file = database.data_dir / DATABASE_FILE
    kept = file.rename(file.with_suffix(".kept"))
    with pytest.raises(DatabaseError, match="removed or replaced while it is in use; stop the server"):
        await database.events.append("log", new_events("lost"))
    with pytest.raises(DatabaseError, match="removed or replaced"):
        await database.conversations.update("c", title="lost")
    file.write_bytes(b"")
    with pytest.raises(DatabaseError, match="removed or replaced"):
        await database.events.append("log", new_events("lost"))
    kept.rename(file)
    assert await database.events.append("log", new_events("after")) == 1


async def test_a_lock_that_ends_in_time_is_waited_for(tmp_path: Path) -> None:
    async with open_database(tmp_path, DatabaseSettings(busy_timeout_seconds=10)) as database:
        with another_program(database) as other:
            other.execute("BEGIN IMMEDIATE")
            appending = asyncio.create_task(database.events.append("log", new_events("a")))
            await asyncio.sleep(0)
            other.execute("ROLLBACK")
            assert await appending == 0


async def test_an_owner_of_another_process_is_respected_in_the_same_transaction(database: Database) -> None:
    """Nothing in this process knows of the new owner: only the database can tell."""
    epoch = await database.events.claim("log")
    await database.events.append("log", new_events("a"), epoch=epoch)
    with another_program(database) as other:
        other.execute("UPDATE owners SET epoch = epoch + 1 WHERE conversation_id = 'log'")
        other.execute(
            "INSERT INTO events (conversation_id, id, kind, source, timestamp, size, payload) "
            "VALUES ('log', 1, 'MessageEvent', 'user', 0, 5, 'their')"
        )
    mine = database.events.append("log", new_events("b", "c"), epoch=epoch)
    others = [database.events.append(f"log-{i}", new_events("x")) for i in range(5)]
    outcomes = await asyncio.gather(mine, *others, return_exceptions=True)
    assert isinstance(outcomes[0], StaleOwnerError)
    assert outcomes[1:] == [0] * 5
    assert await database.events.last_id("log") == 1


async def test_events_that_another_process_stored_are_gone_around_without_an_error(database: Database) -> None:
    await database.events.append("log", new_events("a"))
    with another_program(database) as other:
        other.execute(
            "INSERT INTO events (conversation_id, id, kind, source, timestamp, size, payload) "
            "VALUES ('log', 1, 'MessageEvent', 'user', 0, 5, ?)",
            (b"theirs",),
        )
    mine = database.events.append("log", new_events("b"))
    others = [database.events.append(f"log-{i}", new_events("x")) for i in range(5)]
    assert await asyncio.gather(mine, *others) == [2, 0, 0, 0, 0, 0]
    assert await payloads(database.events, "log") == [b"a", b"theirs", b"b"]


async def test_an_impossible_value_fails_its_own_append_only(database: Database) -> None:
    impossible = new_event("bad")._replace(kind="half \ud83d character")
    calls = [database.events.append(log, [event]) for log, event in (("a", new_event("x")), ("b", impossible))]
    calls.append(database.events.append("b", new_events("good")))
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(outcomes[1], EventStoreError)
    assert [outcomes[0], outcomes[2]] == [0, 0]


async def test_a_cause_too_large_for_any_integer_column_fails_its_own_append_only(database: Database) -> None:
    outcomes = await asyncio.gather(
        database.events.append("a", [new_event("bad", cause=2**80)]),
        database.events.append("b", new_events("good")),
        return_exceptions=True,
    )
    assert isinstance(outcomes[0], EventStoreError)
    assert outcomes[1] == 0


async def test_appends_of_all_logs_share_transactions(database: Database) -> None:
    batches: list[int] = []
    insert_events = database.engines.insert_events

    async def counting(connection: AsyncConnection, rows: Sequence[EventRow]) -> set[str]:
        batches.append(len(rows))
        return await insert_events(connection, rows)

    await database.writer.close()
    async with Writer(replace(database.engines, insert_events=counting), close_timeout_seconds=5) as writer:

        async def write(log: str) -> None:
            for _ in range(5):
                await writer.append(log, [SMALL], epoch=0)

        await asyncio.gather(*(write(f"log-{i}") for i in range(40)))
    assert sum(batches) == 200
    assert len(batches) <= 10


async def test_the_ends_of_many_more_logs_than_are_remembered_are_right(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.db.writer.MAX_CACHED_TAILS", 3)
    for turn in range(3):
        assert [await database.events.append(f"log-{i}", new_events("x")) for i in range(8)] == [turn] * 8


async def test_a_change_waits_for_the_appends_before_it_and_is_seen_by_those_after_it(database: Database) -> None:
    seen: list[int] = []

    async def look(connection: AsyncConnection) -> None:
        seen.append((await connection.execute(text("SELECT count(*) FROM events"))).scalar_one())

    await asyncio.gather(
        database.events.append("a", new_events("x", "y")),
        database.writer.change(look),
        database.events.append("b", new_events("z")),
        database.writer.change(look),
    )
    assert seen == [2, 3]


async def test_a_failed_change_is_undone_whole_and_the_next_goes_through(database: Database) -> None:
    async def twice(connection: AsyncConnection) -> None:
        for _ in range(2):
            await connection.execute(text("INSERT INTO owners (conversation_id, epoch) VALUES ('log', 7)"))

    with pytest.raises(IntegrityError):
        await database.writer.change(twice)
    assert await database.events.claim("log") == 1


async def test_the_error_of_a_change_reaches_its_caller_unchanged(database: Database) -> None:
    async def refuse(connection: AsyncConnection) -> None:
        await connection.execute(text("INSERT INTO owners (conversation_id, epoch) VALUES ('log', 7)"))
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await database.writer.change(refuse)
    assert await database.events.claim("log") == 1


async def test_database_errors_do_not_show_the_values(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    async def wrong(connection: AsyncConnection) -> None:
        await connection.execute(text("INSERT INTO nowhere VALUES (:value)"), {"value": "hunter2"})

    with pytest.raises(DatabaseError) as caught:
        await database.writer.change(wrong)
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in str(caught.value.__cause__)
    assert "hunter2" not in caplog.text


@only_sqlite
async def test_a_broken_connection_is_replaced(database: Database) -> None:
    await database.events.append("log", new_events("a"))
    connection = database.writer._connection
    assert connection is not None
    raw = await connection.get_raw_connection()
    assert raw.driver_connection is not None
    await raw.driver_connection.close()
    with pytest.raises(EventStoreError):
        await database.events.append("log", new_events("lost"))
    assert await database.events.append("log", new_events("b")) == 1


async def test_closing_stores_what_is_pending(tmp_path: Path, database_settings: DatabaseSettings) -> None:
    async with open_database(tmp_path, database_settings) as database:
        pending = [asyncio.create_task(database.events.append("log", new_events(f"{i}"))) for i in range(200)]
        await asyncio.sleep(0)
    assert await asyncio.gather(*pending) == list(range(200))
    async with open_database(tmp_path, database_settings) as database:
        assert await database.events.last_id("log") == 199


async def test_closing_waits_for_a_large_payload_on_its_way(
    tmp_path: Path, database_settings: DatabaseSettings
) -> None:
    async with open_database(tmp_path, database_settings) as database:
        pending = asyncio.create_task(database.events.append("log", new_events(b"x" * 4_000_000)))
        await asyncio.sleep(0)
    assert await pending == 0


async def test_a_closed_store_refuses_appends(tmp_path: Path, database_settings: DatabaseSettings) -> None:
    async with open_database(tmp_path, database_settings) as database:
        pass
    with pytest.raises(EventStoreError, match="closed"):
        await database.events.append("log", new_events("a"))
    with pytest.raises(EventStoreError, match="closed"):
        await database.events.append("log", new_events(b"x" * 2_000_000))
    with pytest.raises(EventStoreError, match="closed"):
        await database.events.claim("log")


async def test_closing_gives_up_on_a_database_that_does_not_answer_in_time(tmp_path: Path) -> None:
    settings = DatabaseSettings(busy_timeout_seconds=0.5, close_timeout_seconds=0.05)
    async with asyncio.timeout(30), open_database(tmp_path, settings) as database:
        with another_program(database) as other:
            other.execute("BEGIN IMMEDIATE")
            pending = [asyncio.create_task(database.events.append(log, new_events("a"))) for log in ("a", "b")]
            await asyncio.sleep(0)
            await database.writer.close()
            outcomes = await asyncio.gather(*pending, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [DatabaseError] * 2


async def test_closing_tells_also_who_waits_between_two_attempts(database: Database) -> None:
    async def lost(connection: AsyncConnection, rows: Sequence[EventRow]) -> set[str]:
        raise ConnectionResetError("by peer")

    await database.writer.close()
    async with (
        asyncio.timeout(30),
        Writer(replace(database.engines, insert_events=lost), close_timeout_seconds=0.05) as writer,
    ):
        pending = asyncio.create_task(writer.append("log", [SMALL], epoch=0))
        await until(lambda: writer.health.problem)  # the second attempt has failed, too
        await writer.close()
        with pytest.raises(DatabaseError, match="may not be stored"):
            await pending


async def test_that_the_storage_works_again_is_found_also_where_there_is_always_something_to_change(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a server of several, whose renewals come more often than it is tried."""
    health, nothing = database.writer.health, text("DELETE FROM conversations WHERE id = 'none'")
    monkeypatch.setattr(type(health), "PROBE_SECONDS", 0.2)

    async def works_again() -> bool:
        await database.writer.execute(nothing)
        return not health.problem

    health.failed(STORAGE_UNAVAILABLE, "the database server cannot be reached")
    await until(works_again)


async def test_more_pending_changes_than_the_bound_are_refused(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.db.writer.MAX_PENDING", 5)
    calls = [database.events.append("log", new_events(f"{i}")) for i in range(8)]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert outcomes[:5] == [0, 1, 2, 3, 4]
    assert all("cannot keep up" in str(outcome) for outcome in outcomes[5:])


async def test_what_is_not_ready_holds_up_only_its_own_log(database: Database) -> None:
    prepared = asyncio.Event()

    async def prepare() -> list[Record]:
        await prepared.wait()
        return [SMALL]

    slow = asyncio.create_task(database.writer.append_prepared("slow", prepare, epoch=0))
    await asyncio.sleep(0)
    behind = asyncio.create_task(database.writer.append("slow", [SMALL], epoch=0))
    deleting = asyncio.create_task(database.events.delete("slow"))
    assert await database.writer.append("other", [SMALL], epoch=0) == 0
    assert not behind.done()
    prepared.set()
    assert (await slow, await behind) == (0, 1)
    await deleting
    assert await database.events.last_id("slow") == -1


async def test_a_failed_preparation_leaves_no_gap(database: Database) -> None:
    async def prepare() -> list[Record]:
        await asyncio.sleep(0)
        raise EventStoreError("no room")

    outcomes = await asyncio.gather(
        database.writer.append("log", [SMALL], epoch=0),
        database.writer.append_prepared("log", prepare, epoch=0),
        database.writer.append("log", [SMALL], epoch=0),
        return_exceptions=True,
    )
    assert (outcomes[0], str(outcomes[1]), outcomes[2]) == (0, "no room", 1)


async def test_timestamps_and_facts_are_kept_in_their_columns(database: Database) -> None:
    event = new_event("payload", cause=7)
    await database.events.append("log", [event])
    [row] = await database.engines.fetch("SELECT kind, source, cause, timestamp, size FROM events")
    assert tuple(row) == ("MessageEvent", "user", 7, 1763728215123456, 7)
    assert isinstance(event, NewEvent)
