"""The audit log in both databases: one order, beside what it tells of, and what happens to whoever tampers with it."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from server.auth.audit import SYSTEM, Actor, AuditEntry, ChainCheck, Means
from server.auth.signing import fingerprint_of
from server.cli import main
from server.db.audit_files import check_file
from server.db.database import DATABASE_FILE, KEY_FILE, Database, open_database
from server.db.engine import DatabaseSettings, create_engines
from server.db.errors import DatabaseError
from server.db.repositories import audit as audit_module
from server.db.repositories.audit import AuditLog, Wanted
from server.db.repositories.user_secrets import SecretExistsError
from server.db.sealing_keys import rotate_key
from server.db.writer import Writer

from .conftest import only_sqlite

ROOT = Path(__file__).parents[3]
ANN = Actor("ann", "Ann", Means.TOKEN, "192.0.2.7")
BOB = Actor("bob", "Bob", Means.SESSION, "192.0.2.8")
WHOLE: tuple[list[str], list[str]] = ([], [])


def found(check: ChainCheck) -> tuple[list[str], list[str]]:
    return check.problems, check.breaks


async def fill(log: AuditLog, count: int = 5) -> None:
    for number in range(1, count + 1):
        await log.record("secret.created", ("secret", f"KEY_{number}"), actor=ANN if number % 2 else BOB)


async def tamper(database: Database, *statements: str) -> None:
    """Change the database as somebody does who may do anything in it."""
    own = {
        "sqlite": ("DROP TRIGGER IF EXISTS audit_unchanged", "DROP TRIGGER IF EXISTS audit_kept"),
        "postgresql": ("SET LOCAL session_replication_role = replica",),
    }[database.engines.kind]
    engines = create_engines(database.engines.write.url, DatabaseSettings())
    async with engines.write.begin() as connection:
        for statement in (*own, *statements):
            await connection.execute(text(statement))
    await engines.dispose()


@asynccontextmanager
async def another_server(database: Database, note: Path) -> AsyncIterator[AuditLog]:
    """The log as another server of the same database has it, with a data folder of its own."""
    engines = create_engines(database.engines.write.url, DatabaseSettings(busy_timeout_seconds=60))
    async with Writer(engines, close_timeout_seconds=5) as writer:
        yield AuditLog(engines, writer, database.audit.key, note)
    await engines.dispose()


async def test_records_are_found_by_what_they_say(database: Database) -> None:
    log = database.audit
    assert await log.head() is None
    assert found(await log.verify()) == WHOLE
    await fill(log)
    await log.record("secretive.thing", actor=BOB)
    assert [one.number for one in await log.page(Wanted(actor="ann"))] == [5, 3, 1]
    assert [one.number for one in await log.page(Wanted(action="secret"), limit=2)] == [5, 4]
    assert [one.number for one in await log.page(Wanted(action="secret.created"), before=4, limit=2)] == [3, 2]
    assert [one.number async for one in log.records(Wanted(actor="bob"), after=2)] == [4, 6]
    third = (await log.page(Wanted(), before=4, limit=1))[0]
    assert [one.number for one in await log.page(Wanted(since=third.at, until=third.at))] == []
    assert [one.number for one in await log.page(Wanted(until=third.at))] == [2, 1]
    assert [one.number for one in await log.page(Wanted(since=third.at, actor="ann"))] == [5, 3]
    assert json.loads(third.text)["target"] == {"id": "KEY_3", "kind": "secret"}
    assert found(await log.verify()) == WHOLE


async def test_a_record_is_stored_with_the_change_or_neither_is(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, secrets = database.audit, database.user_secrets
    async with log.beside("secret.created", ("secret", "ONE"), actor=ANN):
        await secrets.create("ONE", "value", "", "ann")
    with pytest.raises(SecretExistsError):
        async with log.beside("secret.created", ("secret", "ONE"), actor=ANN):
            await secrets.create("ONE", "value", "", "ann")
    async with log.beside("secret.deleted", ("secret", "TWO"), actor=ANN):
        assert not await secrets.delete("TWO", "ann")
    async with log.beside("secret.deleted", ("secret", "ONE"), actor=ANN):
        assert await secrets.delete("ONE", "ann")
        await secrets.create("THREE", "another change", "", "ann")
    async with log.beside("plugin.installed", ("plugin", "kept elsewhere"), actor=ANN):
        pass
    actions = [one.action async for one in log.records()]
    assert actions == ["secret.created", "secret.deleted", "plugin.installed"]

    async def fail(*_: object) -> None:
        raise RuntimeError("the record cannot be made")

    monkeypatch.setattr(log, "_insert", fail)
    with pytest.raises(RuntimeError, match="cannot be made"):
        async with log.beside("secret.created", ("secret", "FOUR"), actor=ANN):
            await secrets.create("FOUR", "value", "", "ann")
    assert [one.name for one in await secrets.names("ann")] == ["THREE"]
    assert found(await log.verify()) == WHOLE


async def test_nobody_changes_or_removes_a_record_by_an_ordinary_statement(database: Database) -> None:
    await fill(database.audit)
    whole = [f"{verb} audit" for verb in ("TRUNCATE",) if database.engines.kind == "postgresql"]
    for statement in ("UPDATE audit SET action = 'x.y' WHERE number = 2", "DELETE FROM audit WHERE number = 5", *whole):
        with pytest.raises((DatabaseError, DBAPIError), match=r"records of the audit log are|P0001"):
            await database.writer.execute(text(statement))
    assert found(await database.audit.verify()) == WHOLE


_FIRST = (
    "UPDATE audit SET record = replace(record, 'KEY_2', 'KEY_9') WHERE number = 2",
    "record 2 was changed: its hash is not that of what it says",
)


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE audit SET number = 22 WHERE number = 2", "record 2 is missing"),
        ("UPDATE audit SET at = at + 1 WHERE number = 2", "record 2 was changed: the time"),
        ("UPDATE audit SET user_id = 'eve' WHERE number = 2", "record 2 was changed: the user"),
        ("UPDATE audit SET action = 'x.y' WHERE number = 2", "record 2 was changed: the action"),
        _FIRST,
        ("UPDATE audit SET hash = 'x' WHERE number = 2", "record 2 was changed: its hash"),
        ("DELETE FROM audit WHERE number = 2", "record 2 is missing"),
        ("DELETE FROM audit WHERE number > 3", "records 4 to 5 are missing from the end"),
        ("DELETE FROM audit", "records 1 to 5 are missing from the end"),
        ("UPDATE audit_heads SET number = 4", "record 5 is behind the end that was signed"),
        ("UPDATE audit_heads SET hash = 'x'", "record 5 is not the one that was signed"),
        ("UPDATE audit_heads SET signature = 'ab'", "the log's end is not what was signed"),
        ("UPDATE audit_heads SET stump_number = 1", "record 1 comes behind record 1"),
        ("DELETE FROM audit_heads", "records 1 to 5 are behind the end that was signed"),
    ],
)
@only_sqlite
async def test_what_was_done_to_the_log_is_found_and_said_when_it_goes_on(
    database: Database, statement: str, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = database.audit
    await fill(log)
    await tamper(database, statement)
    assert (await log.verify()).problems[0].startswith(problem)
    is_seen_at_the_end = "number = 2" not in statement and "stump" not in statement
    await log.record("key.rotated", actor=SYSTEM)  # it is not held up
    check = await log.verify()
    if is_seen_at_the_end:
        assert len(check.breaks) == 1
        assert log.is_broken
        assert [one.code for one in caplog.records if hasattr(one, "code")] == ["audit_broken"]
    else:
        assert check.problems[0].startswith(problem)


@pytest.mark.parametrize("first", [1, 3])
async def test_the_end_cannot_be_cut_off_with_an_older_head_where_the_server_remembers_it(
    database: Database, first: int
) -> None:
    log = database.audit
    await fill(log, first)
    head = await log.head()
    assert head is not None
    await fill(log, 3)
    await tamper(
        database,
        f"DELETE FROM audit WHERE number > {first}",  # noqa: S608 - our own numbers
        f"UPDATE audit_heads SET number = {first}, hash = '{head.hash}', signature = '{head.signature}'",  # noqa: S608
    )
    missing = f"records {first + 1} to {first + 3} are missing from the end"
    assert (await log.verify()).problems == [missing]
    await log.look()
    assert log.is_broken
    await log.record("key.rotated", actor=SYSTEM)
    check = await log.verify()
    why = f"the log ends with record {first}, and this server has written record {first + 3}"
    number = first + 4
    assert found(check) == ([], [f"record {number} was written where the log was found broken: {why}"])
    assert check.last[0] == number + 1


async def test_the_last_records_are_looked_at_when_a_server_starts(
    tmp_path: Path,
    database_settings: DatabaseSettings,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(audit_module, "LOOKED_AT", 3)
    async with open_database(tmp_path, database_settings) as database:
        await database.audit.look()
        await fill(database.audit, 6)
        await database.audit.look()
        await tamper(database, _FIRST[0])  # further back
        await database.audit.look()
    assert "drydock audit verify" not in caplog.text
    async with open_database(tmp_path, database_settings) as database:
        await tamper(database, _FIRST[0].replace("2", "5").replace("KEY_9", "KEY_5x"))
        await database.audit.look()
        assert database.audit.is_broken
    assert "record 5 was changed" in caplog.text
    assert "drydock audit verify" in caplog.text


async def test_servers_that_append_at_once_make_one_chain(tmp_path: Path, database: Database) -> None:
    async with AsyncExitStack() as stack:  # with patience for the lock of SQLite
        notes = [tmp_path / f"{number}.json" for number in range(3)]
        logs = [await stack.enter_async_context(another_server(database, note)) for note in notes]

        async def work(log: AuditLog, number: int) -> None:
            for turn in range(5):
                await log.record("some.thing", ("turn", f"{number}/{turn}"), actor=ANN)

        await asyncio.gather(*(work(logs[number % 3], number) for number in range(8)))
        check = await logs[0].verify()
        assert found(check) == WHOLE
        assert check.records == 40
        assert found(await database.audit.verify()) == WHOLE


async def test_a_clock_that_goes_back_changes_nothing_of_the_order(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([datetime(2026, 11, 29, tzinfo=UTC) - timedelta(days=days) for days in range(3)])
    monkeypatch.setattr(audit_module, "utc_now", lambda: next(clock))
    await fill(database.audit, 3)
    check = await database.audit.verify()
    assert found(check) == WHOLE
    assert len(check.notes) == 2
    assert [one.number async for one in database.audit.records()] == [1, 2, 3]


async def test_old_records_are_removed_by_name_and_the_rest_is_verified_from_the_stump_on(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = database.audit
    clock = iter([datetime(2026, 11, day, tzinfo=UTC) for day in (1, 2, 3, 2, 5, 6, 7, 8)])
    monkeypatch.setattr(audit_module, "utc_now", lambda: next(clock))
    await fill(log)
    kept = await log.verify()
    assert await log.prune(datetime(2026, 11, 1, tzinfo=UTC), ANN) == 0
    assert await log.prune(datetime(2026, 11, 3, tzinfo=UTC), ANN) == 2  # the fourth is behind a younger one
    assert [(one.number, one.action) async for one in log.records(after=4)] == [
        (5, "secret.created"),
        (6, "audit.pruned"),
    ]
    assert found(await log.verify(kept.last)) == WHOLE
    assert await log.prune(datetime(2026, 12, 1, tzinfo=UTC), ANN) == 4
    await log.record("some.thing", actor=ANN)
    check = await log.verify()
    assert (found(check), check.records, check.last[0]) == (WHOLE, 2, 8)
    await tamper(database, "UPDATE audit_heads SET stump_number = 7", "DELETE FROM audit WHERE number = 7")
    assert (await log.verify()).problems


async def test_another_key_signs_from_its_exchange_on(tmp_path: Path, database_settings: DatabaseSettings) -> None:
    async with open_database(tmp_path, database_settings) as database:
        await fill(database.audit)
        await rotate_key(database.writer, database.secrets, tmp_path / KEY_FILE, database.audit, ANN)
    async with open_database(tmp_path, database_settings) as database:
        await fill(database.audit, 1)
        assert found(await database.audit.verify()) == WHOLE
        (rotated,) = await database.audit.page(Wanted(action="key"))
        keys = json.loads(rotated.text)["details"]
        assert keys["from"] != keys["to"]
    (tmp_path / KEY_FILE).unlink()
    async with open_database(tmp_path, database_settings) as database:  # a key that nobody has handed over
        await fill(database.audit, 1)
        problem = "the end of the log is signed with another key than this server's"
        assert (await database.audit.verify()).breaks == [
            f"record 8 was written where the log was found broken: {problem}"
        ]


async def test_refusals_are_noted_soon_and_a_flood_of_them_is_counted(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_module, "MAX_WAITING", 5)
    monkeypatch.setattr(audit_module, "_CLOSE_SECONDS", 60.0)
    log = database.audit
    for number in range(audit_module.MAX_WAITING + 7):
        log.later(AuditEntry("sign_in.refused", ANN, ("door", str(number))))
    await log.close()
    records = [one async for one in log.records()]
    assert len(records) == audit_module.MAX_WAITING
    assert json.loads(records[0].text)["details"] == {"more": 7}


def test_files_are_checked_with_the_key_and_without_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "data"

    async def begin() -> bytes:
        async with open_database(folder) as database:
            await fill(database.audit, 8)
            return database.audit.key.public

    public = asyncio.run(begin())
    here = ("--data-dir", str(folder))

    def run(*words: str) -> tuple[int, str]:
        status = main(["audit", *words])
        said = capsys.readouterr()
        return status, said.out + said.err

    lines, backup = tmp_path / "audit.jsonl", tmp_path / "monday.drydock"
    assert run("export", "-o", str(lines), *here)[0] == 0
    assert main(["backup", str(backup), *here, "--quiet"]) == 0
    for file in (lines, backup, folder / DATABASE_FILE):
        status, said = run("verify", str(file), *here)
        assert status == 0, said
        assert "8 records, signed with the key" in said
        status, said = run("verify", str(file), "--data-dir", str(tmp_path / "none"))
        assert "Whose key that is, this machine does not know" in said
    status, said = run("verify", *here)
    assert status == 0
    end = said.split()[-1]
    assert run("verify", str(lines), "--head", end, *here)[0] == 0
    assert run("verify", str(lines), "--head", f"9:{'0' * 64}", *here)[0] == 1
    assert run("verify", "--head", "9", *here)[0] == 2
    key = tmp_path / "key.pem"
    key.write_text(run("key", *here)[1].rpartition("SHA-256")[0])
    assert run("verify", str(lines), "--key", str(key), "--data-dir", str(tmp_path / "none"))[0] == 0
    outside = [ROOT / "scripts" / "check_audit_log", lines]
    done = subprocess.run(outside, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert fingerprint_of(public) in done.stdout
    whole = lines.read_text().splitlines()
    for torn in (whole[:-1], [*whole[:3], *whole[4:]], [*whole[:-2], "{", whole[-1]], whole[:-2]):
        lines.write_text("\n".join(torn) + "\n")
        assert run("verify", str(lines), *here)[0] == 1
        assert subprocess.run(outside, capture_output=True, check=False).returncode != 0
    lines.write_text("no log at all")
    assert run("verify", str(lines), *here)[0] == 2
    assert run("export", "-o", str(lines), *here) == (2, f"drydock: {lines} exists; name another file\n")
    assert "KEY_8" in run("list", "--action", "secret", "--actor", "bob", *here)[1]
    assert run("list", "--actor", "nobody", *here) == (0, "")
    assert run("list", "--data-dir", str(tmp_path / "none"))[0] == 2
    assert run("prune", "--before", "2100-01-01", *here)[0] == 2  # no terminal, and no --yes
    assert run("prune", "--before", "2100-01-01", "--yes", *here)[0] == 0

    checked = check_file(folder / DATABASE_FILE, public)
    assert (found(checked.check), checked.check.records) == (WHOLE, 1)
