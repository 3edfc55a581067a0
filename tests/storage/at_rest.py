"""What becomes of a data folder when the n-th call below it fails while nobody serves.

``python -m tests.storage.at_rest``: it is begun, upgraded from the first schema, backed up and restored, in a process
that has the library preloaded.
After each fault: it was done, or refused in words that are a `DrydockError`'s; what was there before is there, or what
was to come, whole; and the next attempt succeeds and leaves nothing behind.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import logging
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, redirect_stderr
from pathlib import Path

from agent_core.errors import DrydockError
from agent_core.testing.store_contract import new_events
from server.cli.backup import backup
from server.cli.restore import restore
from server.cli.rotate_key import rotate_key
from server.db.archives import ArchiveError
from server.db.data_folder import SANDBOXES, SEED_FOLDER
from server.db.database import DATABASE_FILE, KEY_FILE, UPGRADE_COPIES, open_database
from server.db.engine import DatabaseSettings
from server.db.repositories.conversations import ConversationRecord
from server.settings.settings import Settings
from tests.migrations.test_upgrades import empty_of_schema
from tests.storage.faults import NUMBERS, Faults, build
from tests.storage.sweep import CALLS, ERRORS, NEVER, evenly

SMALL = DatabaseSettings(inline_payload_bytes=100)
OLDEST = "0001"
LARGE = b"large" * 2_000
FILES = {"a": b"a" * 100_000, "folder/b": b"b"}
_TABLES = ("conversations", "events", "settings")


class AtRest:
    """Folders to try it on, and the things that are done with them, by name in `things`."""

    def __init__(self, faults: Faults, folder: Path) -> None:
        self.faults = faults
        self.folder = folder / "data"
        self._kept = folder / "kept"
        self._trial = 0
        self.things: dict[str, Callable[[Path], Iterator[None]]] = {
            "start": self._start,
            "upgrade": self._upgrade,
            "backup": self._backup,
            "backup again": self._backup_again,
            "backup with workspaces": self._backup_with_workspaces,
            "restore": self._restore,
            "restore over another": self._restore_over,
            "rotate": self._rotate,
        }

    def prepare(self) -> None:
        """A data folder of this version, one of the first schema, and a backup."""
        self.folder.mkdir()
        asyncio.run(_fill(self._kept / "new", "c1"))
        asyncio.run(_fill(self._kept / "other", "c2"))
        shutil.copytree(self._kept / "new", self._kept / "old")
        _downgrade(self._kept / "old" / DATABASE_FILE, self._kept / "new" / DATABASE_FILE)
        _back_up(self._kept / "new", self._kept / "backup")

    def carry_out(self, what: str, call: str, error: str, skip: int, *, lasts: bool) -> tuple[list[str], str, int]:
        """The calls that failed, what is wrong, and how many calls there were."""
        self._trial += 1
        place = self.folder / str(self._trial)
        thing = self.things[what](place)
        next(thing)
        self.faults.switch(f"{call} {NUMBERS[error]} {skip} {-1 if lasts else 1}")
        problem = ""
        try:
            next(thing)
        except DrydockError as refused:
            problem = _words(str(refused))
        except Exception as failure:  # noqa: BLE001 - whatever it is, it is what this trial found
            problem = f"{type(failure).__name__}: {failure}"
        calls = self.faults.calls()
        self.faults.switch("")
        try:
            next(thing, None)
        except (AssertionError, DrydockError, OSError, sqlite3.Error) as failure:
            problem = f"{problem} then {type(failure).__name__}: {failure}".strip()
        shutil.rmtree(place, ignore_errors=True)
        return [path for _, failed, path in calls if failed], problem, len(calls)

    # --- each prepares, does it, and looks at what came of it ---

    def _start(self, place: Path) -> Iterator[None]:
        yield
        asyncio.run(_open(place))
        yield
        asyncio.run(_open(place, appends=True))
        _nothing_left(place)

    def _upgrade(self, place: Path) -> Iterator[None]:
        shutil.copytree(self._kept / "old", place)
        before = _rows(place / DATABASE_FILE)
        yield
        asyncio.run(_open(place))
        yield
        assert _rows(place / DATABASE_FILE) == before, "it is not what it was, nor what it is to be"
        for copy in (place / UPGRADE_COPIES).glob("[0-9]*"):
            assert _rows(copy) == before, "the copy from before is not whole"
        asyncio.run(_open(place, appends=True))
        assert any((place / UPGRADE_COPIES).glob(f"*-schema-{OLDEST}.db")), "there is no copy from before"
        _nothing_left(place)

    def _backup(self, place: Path) -> Iterator[None]:
        shutil.copytree(self._kept / "new", place / "server")
        (place / "disk").mkdir()
        file = place / "disk" / "a.drydock"
        yield
        _back_up(place / "server", file)
        yield
        assert not file.exists() or self._is_whole(file, place), "a file that is no whole backup"
        _back_up(place / "server", file, replace=True)
        assert self._is_whole(file, place)
        assert [one.name for one in (place / "disk").iterdir()] == [file.name], "something is left"

    def _backup_again(self, place: Path) -> Iterator[None]:
        file = place / "disk" / "a.drydock"
        file.parent.mkdir(parents=True)
        shutil.copytree(self._kept / "new", place / "server")
        shutil.copyfile(self._kept / "backup", file)
        yield
        _back_up(place / "server", file, replace=True)
        yield
        assert self._is_whole(file, place), "neither the backup from before nor the new one"

    def _backup_with_workspaces(self, place: Path) -> Iterator[None]:
        shutil.copytree(self._kept / "new", place / "server")
        file = place / "a.drydock"
        yield
        _back_up(place / "server", file, workspaces=True)
        yield
        assert not file.exists() or self._is_whole(file, place), "a file that is no whole backup"
        if file.exists():
            found = _waiting_files(place / "restored")
            wrong = [name for name, content in found.items() if content != FILES[name]]
            assert not wrong, f"{wrong} are not what they were"
        _back_up(place / "server", file, replace=True, workspaces=True)
        assert self._is_whole(file, place)
        assert _waiting_files(place / "restored") == FILES
        assert sorted(one.name for one in place.iterdir()) == ["a.drydock", "restored", "server"], "something is left"

    def _restore(self, place: Path) -> Iterator[None]:
        yield
        _restore(self._kept / "backup", place)
        yield
        self._restored_or(place, None)

    def _restore_over(self, place: Path) -> Iterator[None]:
        shutil.copytree(self._kept / "other", place)
        yield
        _restore(self._kept / "backup", place)
        yield
        self._restored_or(place, "c2")

    def _rotate(self, place: Path) -> Iterator[None]:
        shutil.copytree(self._kept / "new", place)
        yield
        rotate_key(Settings(data_dir=place), io.StringIO())
        yield
        assert asyncio.run(_secret_of(place)) == "kept", "a start finishes what was begun, or nothing was"
        before = (place / KEY_FILE).read_bytes()
        rotate_key(Settings(data_dir=place), io.StringIO())
        assert asyncio.run(_secret_of(place)) == "kept"
        assert (place / KEY_FILE).read_bytes() != before
        _nothing_left(place)

    def _restored_or(self, place: Path, before: str | None) -> None:
        asyncio.run(_open(place))  # which ends what was begun
        found = asyncio.run(_open(place, appends=True))
        assert found in ({before} - {None}, {"c1"}), f"it holds {found}"
        _restore(self._kept / "backup", place)
        assert asyncio.run(_open(place)) == {"c1"}
        _nothing_left(place)

    def _is_whole(self, file: Path, place: Path) -> bool:
        target = place / "restored"
        shutil.rmtree(target, ignore_errors=True)
        try:
            _restore(file, target)
        except ArchiveError:
            return False
        return asyncio.run(_open(target)) == {"c1"}


async def _fill(data_dir: Path, conversation_id: str) -> None:
    async with open_database(data_dir, SMALL) as database:
        sandbox = {"provider": "unconfined", "name": conversation_id}
        await database.conversations.create(ConversationRecord(id=conversation_id, sandbox=sandbox))
        await database.events.append(conversation_id, new_events(*map(str, range(50)), LARGE))
        await database.user_secrets.create("NAME", "kept", "", "")
    for name, content in FILES.items():
        file = data_dir / SANDBOXES / conversation_id / "workspace" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


async def _secret_of(data_dir: Path) -> str:
    async with open_database(data_dir, SMALL) as database:
        return (await database.user_secrets.values(""))["NAME"].secret.get_secret_value()


async def _open(data_dir: Path, *, appends: bool = False) -> set[str]:
    """Start on it as a server does; returns the conversations, whose logs are what they were."""
    async with open_database(data_dir, SMALL) as database:
        await database.make_room()
        ids = await database.conversations.ids()
        for one in ids:
            found = [event.payload for event in await database.events.read(one, limit=1000)]
            assert len(found) >= 51, f"{one} has lost events"
            assert LARGE in found, f"{one} has lost its large payload"
        if appends:
            assert await database.events.append("next", new_events("x")) >= 0
        return ids


def _downgrade(file: Path, present: Path) -> None:
    """Make the database one of the first schema, with as much of what is in the present one as it could have."""
    file.unlink()
    empty_of_schema(file, OLDEST)
    with closing(sqlite3.connect(file)) as old:
        old.execute("ATTACH ? AS present", (str(present),))
        for (table,) in old.execute("SELECT name FROM main.sqlite_master WHERE type = 'table'").fetchall():
            if table != "alembic_version":
                names = ", ".join(f'"{row[1]}"' for row in old.execute(f"PRAGMA main.table_info({table})"))
                old.execute(f"INSERT INTO main.{table} ({names}) SELECT {names} FROM present.{table}")  # noqa: S608
        old.commit()


def _rows(file: Path) -> list[object]:
    """What the first schema has of some tables, whatever the schema is now."""
    with closing(sqlite3.connect(file)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone()[0] == "ok", f"{file.name} is damaged"
        conversations = database.execute("SELECT id FROM conversations ORDER BY id").fetchall()
        events = database.execute("SELECT conversation_id, id, payload, blob FROM events ORDER BY 1, 2").fetchall()
        return [conversations, [row for row in events if row[0] != "next"]]


def _back_up(data_dir: Path, file: Path, *, replace: bool = False, workspaces: bool = False) -> None:
    settings = Settings(data_dir=data_dir, disk_reserve_mb=0)
    with redirect_stderr(io.StringIO()):
        backup(settings, io.StringIO(), file=file, replace=replace, with_workspaces=workspaces, quiet=True)


def _waiting_files(data_dir: Path) -> dict[str, bytes]:
    """The files of the workspace that a restored folder has."""
    waiting = data_dir / SEED_FOLDER / "c1.tar"
    found = {}
    if waiting.exists():
        with tarfile.open(waiting) as tar:
            for member in tar:
                if member.isfile() and (content := tar.extractfile(member)) is not None:
                    found[member.name.split("workspace/")[-1].removeprefix("./")] = content.read()
    return found


def _restore(file: Path, data_dir: Path) -> None:
    with redirect_stderr(io.StringIO()):
        restore(Settings(data_dir=data_dir), io.StringIO(), file=file, replace=True, take_over=True)


def _words(problem: str) -> str:
    """What is wrong with the words of a refusal."""
    return "" if len(problem) > 20 and "Traceback" not in problem else f"in the wrong words: {problem!r}"


def _nothing_left(place: Path) -> None:
    # A copy's own temporary files, which could not be removed, go with the next upgrade.
    hidden = [path.name for path in place.rglob(".*") if path.parent.name != UPGRADE_COPIES]
    assert not hidden, f"{hidden} are left"


def sweep(at_rest: AtRest, what: str, options: argparse.Namespace) -> tuple[Counter[str], list[str]]:
    """Try all calls of one thing, or `of_each` of each kind; returns how many failed, and the findings."""
    done, found = Counter[str](), list[str]()
    chance = random.Random(options.seed)
    for call in options.calls or CALLS:
        _, problem, count = at_rest.carry_out(what, call, ERRORS[call][0], NEVER, lasts=False)
        found += [f"{what} without a fault: {problem}"] * bool(problem)
        for skip in evenly(count, options.of_each, chance):
            error = ERRORS[call][skip % len(ERRORS[call])]
            for lasts in (False, True):
                failed, problem, _ = at_rest.carry_out(what, call, error, skip, lasts=lasts)
                done[call] += bool(failed)
                if problem:
                    which = f"{'every' if lasts else 'the'} {call} from number {skip + 1} of {count}"
                    found.append(f"{what}: {which} ({error}) {failed[:2]}: {problem}")
    return done, found


def main(options: argparse.Namespace) -> int:
    """Run itself with the library preloaded, or what it is run for."""
    if "LD_PRELOAD" not in os.environ:
        with tempfile.TemporaryDirectory(prefix="drydock-at-rest-") as own:
            environment = {**os.environ, **Faults(build(Path(own)), Path(own)).environment, "AT_REST_FOLDER": own}
            again = [sys.executable, "-m", "tests.storage.at_rest", *sys.argv[1:]]
            return subprocess.run(again, env=environment, check=False).returncode
    logging.disable(logging.CRITICAL)
    folder = Path(os.environ["AT_REST_FOLDER"])
    at_rest = AtRest(Faults(Path(os.environ["LD_PRELOAD"]), folder), folder)
    at_rest.prepare()
    began, all_found, number = time.perf_counter(), list[str](), 0
    for what in options.things or at_rest.things:
        done, found = sweep(at_rest, what, options)
        all_found += found
        number += done.total()
        sys.stdout.writelines(f"{line}\n" for line in [*(f"FOUND {one}" for one in found), f"{what}: {dict(done)}"])
        sys.stdout.flush()
    sys.stdout.write(f"{number} faults in {time.perf_counter() - began:.0f} s; {len(all_found)} found\n")
    return 1 if all_found else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.storage.at_rest", description=__doc__)
    parser.add_argument("things", nargs="*", help="what is done (default: all)")
    parser.add_argument("--calls", nargs="*", choices=CALLS, help="which calls fail (default: all)")
    parser.add_argument("--of-each", type=int, default=NEVER, help="how many calls of each kind, evenly spread")
    parser.add_argument("--seed", type=int, default=0, help="which of them")
    sys.exit(main(parser.parse_args()))
