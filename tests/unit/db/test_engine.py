"""Reading: what happens to it when somebody goes away or the database does."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from pathlib import Path

import pytest
from sqlalchemy import text

from agent_core.errors import EventStoreError
from agent_core.testing.store_contract import new_events
from server.db import sqlite
from server.db.database import Database, open_database
from server.db.engine import DatabaseSettings, create_engines, sqlite_url
from server.db.errors import DatabaseError
from server.db.reads import ThreadedReads
from server.errors import status_of
from tests.unit.db.conftest import only_sqlite


async def test_readers_that_go_away_cost_no_connection(database: Database) -> None:
    await database.events.append("log", new_events("a"))
    for turns in range(12):
        reads = [asyncio.ensure_future(database.events.read("log")) for _ in range(6)]
        lists = [asyncio.ensure_future(database.conversations.list_page(limit=5)) for _ in range(6)]
        for _ in range(turns):
            await asyncio.sleep(0)
        for task in (*reads, *lists):
            task.cancel()
        await asyncio.gather(*reads, *lists, return_exceptions=True)
    assert await database.events.read("log") == [(0, b"a")]


async def test_more_readers_than_connections_take_turns(database: Database) -> None:
    await database.events.append("log", new_events("a"))
    assert await asyncio.gather(*(database.events.read("log") for _ in range(50))) == [[(0, b"a")]] * 50


SLOW = """
    WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 3000000)
    SELECT count(*) FROM numbers
"""


async def test_a_read_that_has_no_turn_in_time_says_so_and_is_counted_and_the_next_one_is_done(tmp_path: Path) -> None:
    engines = create_engines(sqlite_url(tmp_path / "x.db"), DatabaseSettings(read_connections=1))
    reads = engines.reads
    assert isinstance(reads, ThreadedReads)
    reads.turn_seconds = 0.05
    told: list[str] = []
    reads.on_busy = told.append
    first = asyncio.ensure_future(engines.fetch(SLOW))
    await asyncio.sleep(0)
    with pytest.raises(DatabaseError, match=r"busy: 1 reads are at work.*try again") as refused:
        await engines.fetch("SELECT 1")
    assert status_of(refused.value) == 503
    assert len(told) == 1
    assert [tuple(row) for row in await first] == [(3_000_000,)]  # what has begun is not broken off
    assert [tuple(row) for row in await engines.select(text("SELECT 2"))] == [(2,)]
    await engines.dispose()


@only_sqlite
async def test_a_loop_that_is_held_up_takes_no_reader_away_from_others(database: Database) -> None:
    """Each read is done, and its connection free, before the loop hears of it: all are done while it stands still."""
    await database.events.append("log", new_events("a"))
    reads = [asyncio.ensure_future(database.events.read("log")) for _ in range(40)]
    lists = [asyncio.ensure_future(database.conversations.list_page(limit=5)) for _ in range(40)]
    await asyncio.sleep(0)
    time.sleep(0.5)  # noqa: ASYNC251 - the loop is to stand still
    turns = 0
    while not all(task.done() for task in (*reads, *lists)):
        await asyncio.sleep(0)
        turns += 1
    assert turns < 10


async def test_a_closed_database_cannot_be_read(tmp_path: Path) -> None:
    async with open_database(tmp_path) as database:
        pass
    with pytest.raises(EventStoreError, match="closed"):
        await database.events.read("log")
    with pytest.raises(DatabaseError, match="closed"):
        await database.conversations.get("log")
    with pytest.raises(DatabaseError, match="closed"):
        await database.settings.get()


async def test_a_read_that_fails_says_so_without_the_values(tmp_path: Path) -> None:
    engines = create_engines(sqlite_url(tmp_path / "x.db"), DatabaseSettings())
    with pytest.raises(DatabaseError, match="could not be read") as plain:
        await engines.fetch("SELECT * FROM nowhere WHERE secret = :secret", secret="hunter2")
    with pytest.raises(DatabaseError, match="could not be read") as core:
        await engines.select(text("SELECT * FROM nowhere WHERE secret = :secret").bindparams(secret="hunter2"))
    assert "hunter2" not in f"{plain.value} {core.value} {plain.value.__cause__} {core.value.__cause__}"
    await engines.dispose()


def test_an_sqlite_that_is_too_old_is_refused_with_the_version_that_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with pytest.raises(DatabaseError, match=r"3\.35 or newer is needed"):
        sqlite.check_version()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("no url at all", "cannot be read"),
        ("sqlite:///x.db", "names neither postgresql:// nor sqlite\\+aiosqlite://"),
        ("mysql://ann:hunter2@host/name?password=hunter2", "driver mysql, which is not installed"),
        ("sqlite+aiosqlite://", "names no file"),
        ("postgresql+psycopg9://ann:hunter2@host/name", "driver postgresql\\+psycopg9, which is not installed"),
        ("nonsense://ann:hunter2@host/name", "driver nonsense, which is not installed"),
    ],
)
def test_a_database_url_that_cannot_be_used_is_refused_without_its_password(url: str, words: str) -> None:
    with pytest.raises(DatabaseError, match=words) as caught:
        create_engines(url, DatabaseSettings())
    assert "hunter2" not in str(caught.value)
