from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import text

from agent_core.errors import EventStoreError, UnreadableError
from agent_core.events.serialization import from_payload
from agent_core.testing.store_contract import new_events, payloads
from server.db.blobs import FolderBlobStore, PayloadLostError, folder_name
from server.db.database import BLOB_FOLDER, Database, open_database
from server.db.engine import DatabaseSettings
from tests.unit.db.conftest import only_sqlite
from tests.waiting import until


@pytest.fixture
async def blobs(tmp_path: Path) -> AsyncIterator[FolderBlobStore]:
    async with FolderBlobStore(tmp_path / "blobs") as blobs:
        yield blobs


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


async def test_content_is_found_under_its_digest(blobs: FolderBlobStore) -> None:
    digest = await blobs.put("c", b"data")
    assert digest == hashlib.sha256(b"data").hexdigest()
    assert await blobs.get("c", digest) == b"data"


async def test_the_same_content_is_kept_once_for_each_conversation(blobs: FolderBlobStore, tmp_path: Path) -> None:
    digests = {await blobs.put(conversation, b"data") for conversation in ("a", "a", "b")}
    assert len(digests) == 1
    assert len(files(tmp_path / "blobs")) == 2


async def test_nothing_temporary_is_left(blobs: FolderBlobStore, tmp_path: Path) -> None:
    digests = await asyncio.gather(*(blobs.put("c", b"%d" % (i % 5)) for i in range(20)))
    assert files(tmp_path / "blobs") == sorted({f"c/{digest}" for digest in digests})


async def test_deleting_a_conversation_keeps_the_others(blobs: FolderBlobStore) -> None:
    digest = await blobs.put("a", b"data")
    await blobs.put("b", b"data")
    await blobs.delete("a")
    await blobs.delete("a")
    with pytest.raises(PayloadLostError, match="is not there any more"):
        await blobs.get("a", digest)
    assert await blobs.get("b", digest) == b"data"


async def test_collecting_removes_only_what_is_old_and_not_in_use(blobs: FolderBlobStore, tmp_path: Path) -> None:
    used, old, young = [await blobs.put("a", data) for data in (b"used", b"old", b"young")]
    gone = await blobs.put("gone", b"old")
    for path in (tmp_path / "blobs" / "a" / used, tmp_path / "blobs" / "a" / old, tmp_path / "blobs" / "gone" / gone):
        os.utime(path, (0, 0))
    assert await blobs.collect({"a": {used}}, older_than_seconds=60) == 2
    assert files(tmp_path / "blobs") == sorted([f"a/{used}", f"a/{young}"])
    assert not (tmp_path / "blobs" / "gone").exists()


async def test_content_that_is_put_again_counts_as_young(blobs: FolderBlobStore, tmp_path: Path) -> None:
    digest = await blobs.put("a", b"data")
    os.utime(tmp_path / "blobs" / "a" / digest, (0, 0))
    await blobs.put("a", b"data")
    assert await blobs.collect({}, older_than_seconds=60) == 0


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "A", "ä", "a" * 101, "~", "a\ud83d", "a b", "-a"])
def test_unusual_ids_get_a_folder_name_that_is_safe_everywhere(name: str) -> None:
    assert folder_name(name).startswith("~")
    assert len(folder_name(name)) == 65


def test_ordinary_ids_are_their_own_folder_name() -> None:
    assert folder_name("4f1c0e5a9d6b4b1d8a7e3c2f10987654") == "4f1c0e5a9d6b4b1d8a7e3c2f10987654"


@only_sqlite
async def test_a_payload_that_cannot_be_stored_fails_its_append_and_leaves_no_gap(database: Database) -> None:
    (database.data_dir / BLOB_FOLDER).write_text("in the way")
    outcomes = await asyncio.gather(
        database.events.append("log", new_events("a")),
        database.events.append("log", new_events(b"x" * 2_000_000)),
        database.events.append("log", new_events("b")),
        return_exceptions=True,
    )
    assert isinstance(outcomes[1], EventStoreError)
    assert str(outcomes[1]) == "A large payload could not be stored: Not a directory"
    assert [outcomes[0], outcomes[2]] == [0, 1]


@only_sqlite
@pytest.mark.parametrize("damage", ["gone", "changed"])
async def test_a_lost_payload_is_named_in_the_log_and_other_events_can_be_read(
    damage: str, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    await database.events.append("log", new_events("a", b"x" * 2_000_000, "b"))
    (file,) = (database.data_dir / BLOB_FOLDER / name for name in files(database.data_dir / BLOB_FOLDER))
    file.unlink() if damage == "gone" else file.write_bytes(b"y" * 2_000_000)
    assert await database.events.read("log") == [(0, b"a"), (1, b""), (2, b"b")]
    assert "event 1 of conversation log is lost" in caplog.text
    assert from_payload(b"", 1).kind == "ForeignEvent"


@only_sqlite
async def test_a_payload_that_the_disk_does_not_read_is_no_lost_one(database: Database) -> None:
    await database.events.append("log", new_events("a", b"x" * 2_000_000, "b"))
    (file,) = (database.data_dir / BLOB_FOLDER / name for name in files(database.data_dir / BLOB_FOLDER))
    file.unlink()
    file.mkdir()
    with pytest.raises(UnreadableError, match="conversation log cannot be read: Is a directory"):
        await database.events.read("log")


@only_sqlite
async def test_what_others_have_put_into_a_row_is_passed_over(database: Database) -> None:
    await database.events.append("log", new_events("a", "b", "c", "d"))
    for number, value in enumerate(("'no json'", "NULL", "x'ff00'", "17")):
        await database.writer.execute(text(f"UPDATE events SET payload = {value} WHERE id = {number}"))  # noqa: S608
    read = await database.events.read("log")
    assert [from_payload(one.payload, one.id).kind for one in read] == ["ForeignEvent"] * 4


@only_sqlite
async def test_deleting_a_log_deletes_its_large_payloads(database: Database) -> None:
    await database.events.append("log", new_events(b"x" * 2_000_000))
    assert len(files(database.data_dir / BLOB_FOLDER)) == 1
    await database.events.delete("log")
    assert files(database.data_dir / BLOB_FOLDER) == []


async def test_opening_collects_old_leftovers_and_keeps_what_is_in_use(tmp_path: Path) -> None:
    async with open_database(tmp_path) as database:
        await database.events.append("log", new_events(b"x" * 2_000_000))
        leftover = tmp_path / BLOB_FOLDER / "log" / await database.blobs.put("log", b"leftover")
        for path in (tmp_path / BLOB_FOLDER / "log").iterdir():
            os.utime(path, (0, 0))
    async with open_database(tmp_path) as database:
        await until(lambda: not leftover.exists())
        assert await payloads(database.events, "log") == [b"x" * 2_000_000]


@pytest.fixture
async def rows(tmp_path: Path, postgresql_url: str) -> AsyncIterator[Database]:
    async with open_database(tmp_path, DatabaseSettings(url=postgresql_url)) as database:
        yield database


async def stored_rows(database: Database) -> int:
    return int((await database.engines.fetch("SELECT count(*) FROM payloads"))[0][0])


@pytest.mark.postgresql
async def test_rows_keep_large_payloads_where_servers_share_a_database(rows: Database) -> None:
    await rows.events.append("log", new_events("a", b"x" * 2_000_000, "b"))
    assert not (rows.data_dir / BLOB_FOLDER).exists()
    assert await payloads(rows.events, "log") == [b"a", b"x" * 2_000_000, b"b"]
    digest = await rows.blobs.put("log", b"x" * 2_000_000)
    assert await stored_rows(rows) == 1
    assert await rows.blobs.get("log", digest) == b"x" * 2_000_000
    await rows.blobs.put("other", b"x")
    await rows.events.delete("log")
    assert await stored_rows(rows) == 1
    with pytest.raises(PayloadLostError, match="of conversation log is not there any more"):
        await rows.blobs.get("log", digest)


@pytest.mark.postgresql
async def test_rows_that_are_old_and_not_in_use_are_collected(rows: Database) -> None:
    kept, old, young = [await rows.blobs.put("log", data) for data in (b"kept", b"old", b"young")]
    await rows.writer.execute(text("UPDATE payloads SET stored_at = 0 WHERE digest <> :young"), {"young": young})
    assert await rows.blobs.collect({"log": {kept}}, older_than_seconds=60) == 1
    assert [await rows.blobs.get("log", one) for one in (kept, young)] == [b"kept", b"young"]
    with pytest.raises(PayloadLostError):
        await rows.blobs.get("log", old)


@pytest.mark.postgresql
async def test_a_row_that_somebody_has_changed_is_told_from_the_payload(rows: Database) -> None:
    digest = await rows.blobs.put("log", b"x")
    await rows.writer.execute(text("UPDATE payloads SET data = 'y'"))
    with pytest.raises(PayloadLostError, match="is damaged"):
        await rows.blobs.get("log", digest)
