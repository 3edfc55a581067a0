"""The room in SQLite's write-ahead log (`server.db.database`)."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from agent_core.testing.store_contract import new_events
from server.db.database import DATABASE_FILE, open_database
from server.db.sqlite import WAL_PAGES_BEFORE_CHECKPOINT

ROOM = WAL_PAGES_BEFORE_CHECKPOINT * 4096


def tables(data_dir: Path) -> set[str]:
    connection = sqlite3.connect(data_dir / DATABASE_FILE)
    try:
        return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    finally:
        connection.close()


async def _allow_ten_pages_more(connection: AsyncConnection) -> None:
    pages = (await connection.exec_driver_sql("PRAGMA page_count")).scalar_one()
    await connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 10}")


async def test_the_log_has_its_full_length_before_the_first_event_and_keeps_it(tmp_path: Path) -> None:
    async with open_database(tmp_path) as database:
        before = tables(tmp_path)
        wal = tmp_path / f"{DATABASE_FILE}-wal"
        assert wal.stat().st_size < ROOM
        await database.events.append("log", new_events("a"))
        await database.make_room()
        length = wal.stat().st_size
        assert length >= ROOM
        for text in "bcd":
            await database.events.append("log", new_events(text))
        assert wal.stat().st_size == length, "the appends did not begin again at its start"
        assert [payload for _, payload in await database.events.read("log")] == [b"a", b"b", b"c", b"d"]
        assert tables(tmp_path) == before


async def test_room_that_is_there_is_not_made_again_and_what_a_crash_left_is_removed(tmp_path: Path) -> None:
    async with open_database(tmp_path) as database:
        await database.make_room()
        size = (tmp_path / DATABASE_FILE).stat().st_size
        expected = tables(tmp_path)
        connection = sqlite3.connect(tmp_path / DATABASE_FILE)
        connection.execute("CREATE TABLE room_in_the_log (zeros BLOB)")
        connection.close()
        await database.make_room()
        assert tables(tmp_path) == expected
        assert (tmp_path / DATABASE_FILE).stat().st_size <= size + 4096


async def test_a_database_that_cannot_take_it_goes_on_without(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with open_database(tmp_path) as database:
        await database.events.append("log", new_events("a"))
        await database.writer.change(_allow_ten_pages_more)
        await database.make_room()
        assert "no room could be made" in caplog.text
        await database.events.append("log", new_events("b"))
        assert len(await database.events.read("log")) == 2
