from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from agent_core.errors import DrydockError
from agent_core.testing.store_contract import new_events
from server.db.data_folder import ID_FILE, InstanceLock, instance_id
from server.db.database import DATABASE_FILE, KEY_FILE, open_database
from server.db.engine import DatabaseSettings, create_engines, sqlite_url
from server.db.errors import (
    DatabaseError,
    DatabaseVersionError,
    DataDirectoryError,
    InstanceRunningError,
)

ROOT = Path(__file__).parents[3]


def run_python(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """What a fresh Python process says to `code`."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, timeout=60
    )


async def test_a_new_data_folder_is_made_for_this_user_only(tmp_path: Path) -> None:
    async with open_database(tmp_path / "deep" / "data") as database:
        assert database.data_dir == tmp_path / "deep" / "data"
        assert database.data_dir.stat().st_mode & 0o777 == 0o700
        await database.events.append("log", new_events("a"))
        for name in (DATABASE_FILE, f"{DATABASE_FILE}-wal", KEY_FILE):
            assert (database.data_dir / name).stat().st_mode & 0o077 == 0, name


async def test_a_relative_data_folder_is_found_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_database(Path("data")) as database:
        assert database.data_dir == tmp_path / "data"


async def test_everything_is_found_again(tmp_path: Path) -> None:
    async with open_database(tmp_path) as database:
        await database.events.append("log", new_events("a"))
        token, name = database.secrets.encrypt("x", purpose="p"), database.instance_id
    async with open_database(tmp_path) as database:
        assert await database.events.read("log") == [(0, b"a")]
        assert database.secrets.decrypt(token, purpose="p") == "x"
        assert database.instance_id == name


async def test_the_data_folder_has_a_lasting_name_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = instance_id(tmp_path / "a")
    assert re.fullmatch(r"[0-9a-f]{16}", first)
    assert instance_id(tmp_path / "a") == first
    assert instance_id(tmp_path / "b") != first
    (tmp_path / "a" / ID_FILE).write_text("../../etc")
    with pytest.raises(DataDirectoryError, match="holds no instance id; remove it"):
        instance_id(tmp_path / "a")


async def test_a_second_server_on_the_same_folder_is_refused_with_the_first_ones_process(tmp_path: Path) -> None:
    async with open_database(tmp_path):
        with pytest.raises(InstanceRunningError) as caught:
            async with open_database(tmp_path):
                pass
        other = run_python(
            "import sys; from pathlib import Path; from server.db.data_folder import InstanceLock\n"
            "with InstanceLock(Path(sys.argv[1])): pass",
            tmp_path,
        )
    expected = (
        f"another Drydock server (process {os.getpid()}) is using the data folder {tmp_path}; "
        "stop it, or choose another folder with --data-dir"
    )
    assert str(caught.value) == expected
    assert expected in other.stderr
    async with open_database(tmp_path):
        pass


def test_the_lock_of_a_process_that_died_is_free(tmp_path: Path) -> None:
    killed = run_python(
        "import os, signal, sys; from pathlib import Path; from server.db.data_folder import InstanceLock\n"
        "InstanceLock(Path(sys.argv[1])).__enter__(); os.kill(os.getpid(), signal.SIGKILL)",
        tmp_path,
    )
    assert killed.returncode == -9
    with InstanceLock(tmp_path):
        pass


async def test_a_data_folder_that_is_a_file_is_refused_with_its_path_and_the_fix(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_text("")
    with pytest.raises(DataDirectoryError, match="choose another one with --data-dir") as caught:
        async with open_database(path):
            pass
    assert str(path) in str(caught.value)


async def test_a_data_folder_that_cannot_be_written_is_refused_with_its_path_and_the_fix() -> None:
    """As an ordinary user: root may write anywhere, but not below /proc."""
    with pytest.raises(DataDirectoryError, match="the data folder /proc/self/data cannot be written") as caught:
        async with open_database(Path("/proc/self/data")):
            pass
    assert "give this user write access to it, or choose another one with --data-dir" in str(caught.value)


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / DATABASE_FILE).write_bytes(b"something else entirely " * 100)
    with pytest.raises(DatabaseError, match="the file is not a Drydock database") as caught:
        async with open_database(tmp_path):
            pass
    assert str(tmp_path / DATABASE_FILE) in str(caught.value)


async def test_a_database_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    async with open_database(tmp_path) as database:
        await database.events.append("log", new_events("a"))
    connection = sqlite3.connect(tmp_path / DATABASE_FILE)
    connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.commit()
    connection.close()
    with pytest.raises(DatabaseVersionError, match="made by a newer version of Drydock") as caught:
        async with open_database(tmp_path):
            pass
    assert "9999" in str(caught.value)
    assert isinstance(caught.value, DrydockError)
    connection = sqlite3.connect(tmp_path / DATABASE_FILE)
    assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [("9999",)]
    connection.close()


async def test_a_failed_opening_leaves_nothing_locked(tmp_path: Path) -> None:
    path = tmp_path / DATABASE_FILE
    path.write_bytes(b"something else entirely " * 100)
    with pytest.raises(DatabaseError):
        async with open_database(tmp_path):
            pass
    path.unlink()
    async with open_database(tmp_path) as database:
        assert await database.events.last_id("log") == -1


@pytest.mark.parametrize(("synchronous", "number"), [("FULL", 2), ("NORMAL", 1)])
async def test_the_connections_are_set_up_for_durability(tmp_path: Path, synchronous: str, number: int) -> None:
    settings = DatabaseSettings.model_validate({"synchronous": synchronous})
    engines = create_engines(sqlite_url(tmp_path / "x.db"), settings)
    async with engines.write.connect() as connection:
        for pragma, value in (
            ("journal_mode", "wal"),
            ("synchronous", number),
            ("foreign_keys", 1),
            ("busy_timeout", 5000),
        ):
            assert (await connection.exec_driver_sql(f"PRAGMA {pragma}")).scalar_one() == value, pragma
            assert [tuple(row) for row in await engines.fetch(f"PRAGMA {pragma}")] == [(value,)], pragma
    await engines.dispose()


async def test_an_ordinary_start_loads_neither_alembic_nor_cryptography_nor_what_is_postgresqls(tmp_path: Path) -> None:
    async with open_database(tmp_path):
        """It is there when another process starts on it."""
    code = (
        "import asyncio, sys; from pathlib import Path; from server.db.database import open_database\n"
        "async def main():\n"
        "    async with open_database(Path(sys.argv[1])): pass\n"
        "asyncio.run(main())\n"
        "unwanted = {'alembic', 'asyncpg', 'cryptography', 'mako', 'redis', 'sqlalchemy.dialects.postgresql'}\n"
        "print(sorted(unwanted & sys.modules.keys()))"
    )
    started = run_python(code, tmp_path)
    assert (started.returncode, started.stdout.strip()) == (0, "[]")
