"""``drydock migrate-database``: everything arrives as it was, or nothing does."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import JSON, BigInteger, Boolean, Column, Float, LargeBinary, Table, insert, select, text

from agent_core.testing.store_contract import new_events, payloads
from server.cli import main
from server.db import moving, progress
from server.db.database import DATABASE_FILE, open_database, upgrade
from server.db.engine import DatabaseSettings, create_engines
from server.db.errors import BackupError, DatabaseError, InstanceRunningError
from server.db.moving import move_to_postgresql
from server.db.tables import PlainText, UtcMoment, audit, audit_heads, metadata
from tests.postgresql import Cluster
from tests.unit.db.test_key_rotation import check_everything_is_readable, fill

pytestmark = pytest.mark.postgresql

SQLITE = DatabaseSettings(synchronous="NORMAL")
ODD = ["\0", "", " a\0b\x01\x7f\u2028 💡e\u0301 \\N \t'\"\n"]
DOCUMENTS = [{"a\0": [None, 1e300, 2**60, "half \ud83d"], "": {}}, [], "text"]


def odd(column: Column[Any], number: int) -> object:
    """A value that is hard to carry, of the kind that this column has."""
    if column.nullable and number == 0:
        return None
    match column.type:
        case UtcMoment():
            return [datetime(1, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)][
                number
            ]
        case PlainText():
            return (f"{number}" if column.primary_key else "") + ODD[number]
        case JSON():
            return DOCUMENTS[number]
        case Boolean():
            return number == 1
        case Float():
            return [0.1 + 0.2, -0.0, 1e308][number]
        case BigInteger():
            return [-(2**63), number, 2**63 - 1][number]
        case LargeBinary():
            return [b"", b"\0\xff" * 300_000, b"a"][number]
        case _:
            return ["x" * 30, "", "ä\\'"][number]


async def fill_with_odd_values(folder: Path) -> None:
    """Three rows in every table, whichever there are."""
    async with open_database(folder, SQLITE) as database:
        for number in range(3):
            await database.audit.record("some.thing", ("odd", ODD[number]))
        for table in metadata.sorted_tables:
            if table in (audit, audit_heads):  # whose records are not to be changed
                continue
            rows = [{column.name: odd(column, number) for column in table.columns} for number in range(3)]
            for row in rows:
                await database.writer.execute(insert(table), row)
            for column in table.columns:  # as versions of before have kept it
                if isinstance(column.type, PlainText):
                    name = column.name
                    nul = text(f'UPDATE "{table}" SET "{name}" = replace("{name}", char(65533), char(0))')  # noqa: S608
                    await database.writer.execute(nul)


async def rows_of(url: str, table: Table) -> list[tuple[object, ...]]:
    engines = create_engines(url, DatabaseSettings())
    try:
        return sorted((tuple(row) for row in await engines.select(select(table))), key=repr)
    finally:
        await engines.dispose()


async def move(folder: Path, url: str) -> tuple[moving.Moved, list[str]]:
    said: list[str] = []
    return await move_to_postgresql(folder, SQLITE, url, said.append), said


async def test_every_row_of_every_table_arrives_as_it_was(
    tmp_path: Path, new_postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PROGRESS_SECONDS", 0.0)
    await fill_with_odd_values(tmp_path)
    before = (tmp_path / DATABASE_FILE).read_bytes()
    moved, said = await move(tmp_path, new_postgresql_url)
    assert set(moved.rows) == {str(table) for table in metadata.sorted_tables}
    assert moved.replaced > 10
    assert {"copying events: 33 %", "comparing plugins: 100 %"} <= set(said)
    for table in metadata.sorted_tables:
        found = await rows_of(f"sqlite+aiosqlite:///{tmp_path / DATABASE_FILE}", table)
        wanted = [
            tuple(
                one.replace("\0", "\ufffd") if isinstance(one, str) and isinstance(kind.type, PlainText) else one
                for one, kind in zip(row, table.columns, strict=True)
            )
            for row in found
        ]
        assert moved.rows[str(table)] == len(found) >= (1 if table is audit_heads else 3)
        if table is audit_heads:
            continue
        if table is audit:  # that it was moved is recorded there
            assert sorted(await rows_of(new_postgresql_url, table))[:-1] == sorted(wanted)
            continue
        assert await rows_of(new_postgresql_url, table) == sorted(wanted, key=repr)
    assert (tmp_path / DATABASE_FILE).read_bytes() == before


def test_the_server_goes_on_over_it_with_its_key_and_its_large_payloads(
    tmp_path: Path, new_postgresql_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    large = b"large" * 400_000

    async def before() -> int:
        await fill(tmp_path)
        async with open_database(tmp_path, SQLITE) as database:
            epoch = await database.events.claim("c1")
            await database.events.append("c1", new_events("a", large), epoch=epoch)
        return epoch

    async def afterwards(epoch: int) -> None:
        async with open_database(tmp_path, DatabaseSettings(url=new_postgresql_url)) as database:
            await check_everything_is_readable(database)
            check = await database.audit.verify()
            assert (check.problems, check.breaks, check.records) == ([], [], 1)
            assert await payloads(database.events, "c1") == [b"a", large]
            assert await database.events.claim("c1") == epoch + 1

    epoch = asyncio.run(before())
    assert main(["migrate-database", "--data-dir", str(tmp_path), "--to", new_postgresql_url]) == 0
    told = capsys.readouterr().out
    assert "compared row by row: conversations 2, events 2, " in told
    assert "Set database_url (DRYDOCK_DATABASE_URL) to that database" in told
    asyncio.run(afterwards(epoch))


async def test_one_that_is_broken_off_has_moved_nothing_and_can_be_repeated(
    tmp_path: Path, new_postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PROGRESS_SECONDS", 0.0)
    await fill(tmp_path)

    for last in ("copying webhooks", "comparing settings"):

        def break_off(line: str, last: str = last) -> None:
            if line.startswith(last):
                raise BackupError("broken off")  # as a signal does

        with pytest.raises(BackupError):
            await move_to_postgresql(tmp_path, SQLITE, new_postgresql_url, break_off)
        for table in metadata.sorted_tables:
            assert await rows_of(new_postgresql_url, table) == []
    assert (await move(tmp_path, new_postgresql_url))[0].rows["conversations"] == 2


async def test_what_is_changed_on_its_way_is_noticed_and_nothing_is_moved(
    tmp_path: Path, new_postgresql_url: str, postgresql: Cluster
) -> None:
    await fill(tmp_path)
    engines = create_engines(new_postgresql_url, DatabaseSettings())
    await upgrade(engines.write)
    await engines.dispose()
    changing = (
        "CREATE FUNCTION changed() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN NEW.name = NEW.name || '!'; RETURN NEW; END $$",
        "CREATE TRIGGER changing BEFORE INSERT ON secrets FOR EACH ROW EXECUTE FUNCTION changed()",
    )
    await postgresql.run(*changing, database=new_postgresql_url.partition("@/")[2].partition("?")[0])
    with pytest.raises(DatabaseError, match=r"table secrets is not the same at the other end \(1 of 1 rows\)"):
        await move(tmp_path, new_postgresql_url)
    assert await rows_of(new_postgresql_url, metadata.tables["secrets"]) == []


async def test_a_target_that_is_not_empty_and_a_server_that_runs_are_refused(
    tmp_path: Path, new_postgresql_url: str
) -> None:
    await fill(tmp_path)
    await move(tmp_path, new_postgresql_url)
    with pytest.raises(DatabaseError, match="is not empty"):
        await move(tmp_path, new_postgresql_url)
    async with open_database(tmp_path, SQLITE):
        with pytest.raises(InstanceRunningError):
            await move(tmp_path, new_postgresql_url)
    with pytest.raises(DatabaseError, match="the target is SQLite"):
        await move(tmp_path, f"sqlite+aiosqlite:///{tmp_path / 'other.db'}")
    with pytest.raises(DatabaseError, match="there is no database"):
        await move(tmp_path / "none", new_postgresql_url)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            "UPDATE conversations SET options = '{bad' WHERE id = 'c1'",
            "options of c1 in the table conversations is damaged",
        ),
        ("UPDATE conversations SET options = '[NaN]' WHERE id = 'c1'", "options of c1 in the table conversations"),
        ("UPDATE settings SET updated_at = 'never'", "updated_at of .* in the table settings is damaged"),
    ],
)
async def test_a_damaged_row_is_named_and_nothing_is_moved(
    change: str, words: str, tmp_path: Path, new_postgresql_url: str
) -> None:
    await fill(tmp_path)
    with closing(sqlite3.connect(tmp_path / DATABASE_FILE)) as database, database:
        database.execute(change)
    with pytest.raises(DatabaseError, match=words):
        await move(tmp_path, new_postgresql_url)
    assert await rows_of(new_postgresql_url, metadata.tables["conversations"]) == []


def test_without_a_target_the_command_says_what_to_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate-database", "--data-dir", str(tmp_path)]) == 2
    assert "name the PostgreSQL to move to: --to postgresql://" in capsys.readouterr().err
    wrong = "postgresql://ann:hunter2@127.0.0.1:9/x"
    (tmp_path / DATABASE_FILE).touch()
    assert main(["migrate-database", "--data-dir", str(tmp_path), "--to", wrong]) == 2
    told = capsys.readouterr().err
    assert "cannot be reached" in told
    assert "hunter2" not in told
