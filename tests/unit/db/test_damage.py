"""What is damaged in the database is told where it is needed; the rest goes on."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from agent_core.errors import STORAGE_UNAVAILABLE, EventStoreError, UnreadableError
from agent_core.testing.store_contract import new_events
from server.db.database import BLOB_FOLDER, DATABASE_FILE, Database, open_database
from server.db.engine import DatabaseSettings
from server.db.errors import DatabaseError, DatabaseUnreadableError
from server.db.repositories.conversations import ConversationRecord, damaged_records
from server.db.repositories.user_settings import StoredSettings
from server.errors import status_of
from tests.unit.db.conftest import only_sqlite


@only_sqlite
@pytest.mark.parametrize("change", ["options = '{bad'", "sandbox = '17'", "created_at = 'never'", "pr_number = '{'"])
async def test_one_damaged_record_does_not_hide_the_others(change: str, database: Database) -> None:
    for name in ("good", "bad"):
        await database.conversations.create(ConversationRecord(id=name))
    await database.writer.execute(text(f"UPDATE conversations SET {change} WHERE id = 'bad'"))  # noqa: S608
    page = await database.conversations.list_page(limit=10)
    assert {one.id for one in page.results} == {"good", "bad"}
    assert (await database.conversations.get("good")) is not None
    with pytest.raises(UnreadableError, match="record of conversation bad is damaged") as caught:
        await database.conversations.get("bad")
    assert status_of(caught.value) == 503
    field = change.split()[0]
    assert await damaged_records(database.engines) == {"bad": [field]}
    left = await database.conversations.get("bad", even_damaged=True)
    assert left is not None, "for whoever deletes it"


@only_sqlite
@pytest.mark.parametrize("document", ["{bad", '{"language": 17, "llm_model": "m"}', "17"])
async def test_nobody_works_with_damaged_settings_and_they_can_be_saved_again(
    document: str, database: Database
) -> None:
    await database.settings.change(lambda _: StoredSettings(language="de", confirmation_mode=True))
    await database.writer.execute(text("UPDATE settings SET document = :document"), {"document": document})
    with pytest.raises(UnreadableError, match="stored settings are damaged"):
        await database.settings.get()
    await database.settings.change(
        lambda stored: (stored or StoredSettings()).model_copy(update={"language": "en"}), sets=["language"]
    )
    kept = await database.settings.get()
    assert kept is not None
    assert (kept.language, kept.llm_model) == ("en", "m" if "llm_model" in document else None)


@pytest.mark.parametrize("is_there", [True, False])
async def test_an_empty_database_beside_files_of_conversations_is_no_new_one(is_there: bool, tmp_path: Path) -> None:
    async with open_database(tmp_path) as database:
        await database.events.append("log", new_events(b"x" * 2_000_000))
    file = tmp_path / DATABASE_FILE
    file.write_bytes(b"") if is_there else file.unlink()
    with pytest.raises(DatabaseError, match=r"restore it from a backup"):
        async with open_database(tmp_path):
            pass
    assert len(list((tmp_path / BLOB_FOLDER).rglob("*"))) == 2, "its payloads are still there"


async def test_who_waits_behind_a_locked_database_is_told_when_the_first_is(tmp_path: Path) -> None:
    async with open_database(tmp_path, DatabaseSettings(busy_timeout_seconds=0.5)) as database:
        await database.events.append("log", new_events("a"))
        with closing(sqlite3.connect(tmp_path / DATABASE_FILE, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            loop = asyncio.get_running_loop()
            began = loop.time()
            changes = [database.writer.execute(text("UPDATE events SET cause = 1")) for _ in range(100)]
            outcomes = await asyncio.gather(*changes, return_exceptions=True)
            assert loop.time() - began < 30, "not one after the other"
            assert all(isinstance(one, EventStoreError) and "locked" in str(one) for one in outcomes)
            assert all(status_of(one) == 503 for one in outcomes if isinstance(one, Exception))
        assert await database.events.append("log", new_events("b")) == 1


async def test_a_disk_that_gives_nothing_back_is_no_damaged_page_and_new_work_is_refused(tmp_path: Path) -> None:
    async with open_database(tmp_path, DatabaseSettings(synchronous="NORMAL")) as database:
        await database.conversations.create(ConversationRecord(id="one"))
        health, changes = database.writer.health, asyncio.Queue[str]()
        health.watch(lambda now: changes.put_nowait(now.code))
        file = tmp_path / DATABASE_FILE
        with closing(sqlite3.connect(file)) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        whole = file.read_bytes()
        with file.open("r+b") as opened:
            opened.seek(4096)
            opened.write(b"\xff" * (len(whole) - 4096))
        with pytest.raises(DatabaseUnreadableError):
            await database.conversations.get("one")
        assert await asyncio.wait_for(changes.get(), 60) == STORAGE_UNAVAILABLE
        with file.open("r+b") as opened:
            opened.write(whole)
        assert await asyncio.wait_for(changes.get(), 60) == ""
        assert await database.conversations.get("one") is not None
