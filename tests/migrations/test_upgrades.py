"""Upgrades of databases that earlier versions have filled: from every schema, killed at any step, with a way back."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import sys
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from agent_core.events.llm_events import MessageEvent
from agent_core.events.messages import Message
from agent_core.events.serialization import from_payload, to_payload
from agent_core.testing.store_contract import new_event, payloads
from server.cli import main
from server.db.database import DATABASE_FILE, HEAD, MIGRATIONS, UPGRADE_COPIES, Database, examine_file, open_database
from server.db.errors import DatabaseError, DatabaseVersionError
from server.db.upgrade_copies import KEPT
from tests.unit.db.test_key_rotation import ANN, SETTINGS, fill

REVISIONS = sorted(script.revision for script in ScriptDirectory(str(MIGRATIONS)).walk_revisions())
OLDER = [revision for revision in REVISIONS if revision != HEAD]
LARGE = b"large" * 300_000
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder of this version with something of everything in it."""
    folder = tmp_path_factory.mktemp("filled")

    async def make() -> None:
        await fill(folder)
        async with open_database(folder) as database:
            hello = MessageEvent(source="user", llm_message=Message.user("hello"))
            await database.events.append("c1", [new_event(to_payload(hello))])
            await database.events.append("c1", [new_event(LARGE)])

    asyncio.run(make())
    return folder


def rows_of(file: Path) -> dict[str, list[tuple[object, ...]]]:
    connection = sqlite3.connect(file)
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    found = {name: sorted(connection.execute(f'SELECT * FROM "{name}"'), key=repr) for name in tables}  # noqa: S608
    connection.close()
    return found


def empty_of_schema(file: Path, revision: str) -> None:
    """Make the database that this revision of the schema begins with, without a row."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    engine = create_engine(f"sqlite:///{file}")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
    engine.dispose()


def of_revision(filled: Path, folder: Path, revision: str) -> Path:
    """A data folder as the version with this schema had it, with as much of the content as it could have."""
    shutil.copytree(filled, folder)
    file = folder / DATABASE_FILE
    file.unlink()
    empty_of_schema(file, revision)
    old = sqlite3.connect(file)
    old.execute("ATTACH ? AS now", (str(filled / DATABASE_FILE),))
    for (table,) in old.execute("SELECT name FROM main.sqlite_master WHERE type = 'table'").fetchall():
        if table != "alembic_version":
            names = ", ".join(f'"{row[1]}"' for row in old.execute(f"PRAGMA main.table_info({table})"))
            old.execute(f"INSERT INTO main.{table} ({names}) SELECT {names} FROM now.{table}")  # noqa: S608
    old.commit()
    old.close()
    return folder


async def check_content(database: Database, revision: str) -> None:
    """What the version with this schema could keep is there, and what came later works."""
    hello, large = await payloads(database.events, "c1")
    event = from_payload(hello, 0)
    assert isinstance(event, MessageEvent)
    assert event.llm_message == Message.user("hello")
    assert large == LARGE
    assert await database.settings.get(ANN) == SETTINGS
    assert await database.conversations.ids() == {"c1", "c2"}
    assert bool(await database.user_secrets.values(ANN)) == (revision >= "0004")
    assert len(await database.webhooks.all()) == (1 if revision >= "0005" else 0)
    await database.user_secrets.create("NEW", "value", "", ANN)
    assert await database.events.append("c1", [new_event(b"{}")]) == 2


@pytest.mark.parametrize("revision", OLDER)
async def test_what_every_earlier_schema_held_is_there_and_the_database_of_then_is_kept(
    filled: Path, tmp_path: Path, revision: str
) -> None:
    folder = of_revision(filled, tmp_path / "data", revision)
    before = rows_of(folder / DATABASE_FILE)
    for _ in range(2):  # the second start finds nothing to do
        async with open_database(folder) as database:
            pass
        (copy,) = (folder / UPGRADE_COPIES).iterdir()
        assert copy.name.endswith(f"-schema-{revision}.db")
        assert copy.stat().st_mode & 0o777 == 0o600
        assert rows_of(copy) == before
    async with open_database(folder) as database:
        await check_content(database, revision)
    # The way back: the copy in the database's place is what it was, and can be upgraded again.
    copy.replace(folder / DATABASE_FILE)
    async with open_database(folder) as database:
        await check_content(database, revision)


@pytest.mark.parametrize(("revision", "options"), [(OLDER[0], []), (OLDER[0], ["--take-over"]), (OLDER[-1], [])])
async def test_a_backup_of_an_older_version_is_brought_up_to_date_by_the_first_start(
    filled: Path, tmp_path: Path, revision: str, options: list[str]
) -> None:
    old, new, file = of_revision(filled, tmp_path / "old", revision), tmp_path / "new", str(tmp_path / "b")
    assert main(["backup", file, "--data-dir", str(old)]) == 0
    assert main(["restore", file, "--data-dir", str(new), *options]) == 0
    async with open_database(new) as database:
        await check_content(database, revision)
    (copy,) = (new / UPGRADE_COPIES).iterdir()
    assert copy.name.endswith(f"-schema-{revision}.db")


UPGRADE = """
import asyncio, os, pathlib, signal, sys
from alembic import command
from sqlalchemy import Engine, event
from server.db import upgrade_copies
from server.db.database import open_database

template, folder = sys.argv[1:]
left = -1
def passing(what):
    global left
    if left == 0:
        print(what, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
def dying(what, function):
    def call(*arguments, **options):
        passing(what)
        result = function(*arguments, **options)
        passing("behind " + what)
        return result
    return call
def statement(_connection, _cursor, words, *_):
    if words.split()[0] in ("CREATE", "ALTER", "DROP", "INSERT", "UPDATE", "DELETE"):
        passing(" ".join(words.split())[:40])
def upgrading(upgrade):
    def call(*arguments, **options):
        event.listen(Engine, "before_cursor_execute", statement)
        upgrade(*arguments, **options)
        event.remove(Engine, "before_cursor_execute", statement)
    return call
async def start(data_dir):
    async with open_database(pathlib.Path(data_dir)):
        pass
upgrade_copies.copy_database = dying("copy", upgrade_copies.copy_database)
upgrade_copies.sync_folder = dying("sync", upgrade_copies.sync_folder)
command.upgrade = dying("upgrade", upgrading(command.upgrade))
for point in range(1000):
    os.system(f"cp -r {template} {folder}/{point}")
    if (pid := os.fork()) == 0:
        left = point
        asyncio.run(start(f"{folder}/{point}"))
        os._exit(0)
    if os.waitpid(pid, 0)[1] == 0:
        break
"""


async def test_an_upgrade_that_is_killed_is_as_if_it_had_not_begun(filled: Path, tmp_path: Path) -> None:
    """At the copy and behind it, and at each statement of each migration that changes something."""
    template, made = of_revision(filled, tmp_path / "data", REVISIONS[0]), tmp_path / "killed"
    shutil.rmtree(template / "blobs")
    made.mkdir()
    before = rows_of(template / DATABASE_FILE)
    words = [sys.executable, "-c", UPGRADE, str(template), str(made)]
    killing = await asyncio.create_subprocess_exec(*words, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    passed = (await asyncio.wait_for(killing.communicate(), 150))[0].decode().splitlines()
    assert passed[:4] == ["copy", "behind copy", "sync", "behind sync"]
    assert passed[-1] == "behind upgrade"
    steps = [number for number, what in enumerate(passed) if "alembic_version" in what]
    assert len(steps) == len(OLDER)
    assert len(list(made.iterdir())) == len(passed) + 1
    for point in range(len(passed)):
        assert rows_of(made / str(point) / DATABASE_FILE) == before, passed[point]
    for point in (0, 1, 2, *steps[::3], len(passed) - 1):
        folder = made / str(point)
        shutil.copytree(filled / "blobs", folder / "blobs")
        async with open_database(folder) as database:
            await check_content(database, REVISIONS[0])
        assert not list((folder / UPGRADE_COPIES).glob(".*"))


async def test_only_the_newest_copies_are_kept(filled: Path, tmp_path: Path) -> None:
    folder = of_revision(filled, tmp_path / "data", "0008")
    kept = folder / UPGRADE_COPIES
    kept.mkdir()
    for day in range(1, 6):
        (kept / f"2020010{day}T000000Z-schema-0007.db").touch()
    (kept / "mine.db").touch()
    async with open_database(folder):
        pass
    names = sorted(path.name for path in kept.iterdir())
    assert len(names) == KEPT + 1
    assert names[:2] == ["20200104T000000Z-schema-0007.db", "20200105T000000Z-schema-0007.db"]
    assert names[-1] == "mine.db"


async def test_without_room_for_the_copy_nothing_is_changed(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = of_revision(filled, tmp_path / "data", "0008")
    before = rows_of(folder / DATABASE_FILE)
    full = shutil.disk_usage(folder)._replace(free=10)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: full)
        with pytest.raises(DatabaseError, match="0 MiB are free; free some space"):
            async with open_database(folder):
                pass
    assert list((folder / UPGRADE_COPIES).iterdir()) == []
    assert rows_of(folder / DATABASE_FILE) == before


async def test_an_older_version_names_the_copy_that_it_can_use(filled: Path, tmp_path: Path) -> None:
    folder = of_revision(filled, tmp_path / "data", "0008")
    assert examine_file(folder / DATABASE_FILE) == f"its schema is 0008, and is brought to {HEAD} by the next start"
    async with open_database(folder):
        pass
    (copy,) = (folder / UPGRADE_COPIES).iterdir()
    assert examine_file(folder / DATABASE_FILE) == ""
    connection = sqlite3.connect(folder / DATABASE_FILE)
    connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.commit()
    connection.close()
    with pytest.raises(DatabaseVersionError, match="made by a newer version") as caught:
        async with open_database(folder):
            pass
    with pytest.raises(DatabaseVersionError) as told:
        examine_file(folder / DATABASE_FILE)
    assert str(told.value) == str(caught.value)
    assert f"put the copy from before its upgrade, {copy}, in its place" in str(caught.value)
    assert list((folder / UPGRADE_COPIES).iterdir()) == [copy]
