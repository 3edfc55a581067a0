"""What a folder's storage is like: on which kind of file system it is, and how long it takes to sync."""

from __future__ import annotations

import os
import secrets
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, NamedTuple

from server.db.sqlite import damage_of

_TRIES: Final = 5
_BYTES: Final = 4096
_SLOW_MILLISECONDS: Final = 50.0
_NETWORK: Final = ("nfs", "cifs", "smb", "9p", "afs", "ceph", "glusterfs", "lustre", "ncpfs", "fuse.sshfs", "fuse.s3fs")
_MEMORY: Final = ("tmpfs", "ramfs")
_LOG_WITH_GAP: Final = (
    "SELECT conversation_id FROM events GROUP BY conversation_id HAVING count(*) != max(id) + 1 LIMIT 1"
)
_MOUNTS: Final = Path("/proc/self/mountinfo")


class StorageProbe(NamedTuple):
    """The kind of file system ("": not known), and how long a write of a page and its sync take, half of the times."""

    kind: str
    sync_milliseconds: float

    @property
    def danger(self) -> str:
        """What may come of storing a database there, and what to do; "": nothing is known against it."""
        if self.kind.startswith(_NETWORK):
            return (
                f"it is on a network file system ({self.kind}), where locks and shared memory may not hold and SQLite's"
                " database can be damaged: choose a folder on a local disk (data_dir), or PostgreSQL (database_url)"
            )
        if self.kind in _MEMORY:
            return f"it is in memory ({self.kind}) and gone with the next start of the machine: choose one on a disk"
        if self.sync_milliseconds > _SLOW_MILLISECONDS:
            return "each message waits for a sync: a faster disk makes the server faster"
        return ""


def probe_storage(folder: Path) -> StorageProbe:
    """Write to a file there that nobody sees, which is gone again; `OSError` where that is not possible. Blocks."""
    path = folder / f".probe-{secrets.token_hex(8)}"
    times = []
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        path.unlink()
        for _ in range(_TRIES):
            began = time.perf_counter()
            os.pwrite(descriptor, bytes(_BYTES), 0)
            os.fsync(descriptor)
            times.append((time.perf_counter() - began) * 1000)
    finally:
        os.close(descriptor)
        with suppress(OSError):
            path.unlink(missing_ok=True)
    return StorageProbe(file_system(folder), sorted(times)[len(times) // 2])


def file_system(folder: Path, mounts: Path = _MOUNTS) -> str:
    """The kind of file system that a folder is on, "" where the system does not tell."""
    try:
        lines = mounts.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    found, longest = "", -1
    for line in lines:
        left, _, right = line.partition(" - ")
        fields = left.split()
        if len(fields) < 5 or not right:
            continue
        point = fields[4].encode().decode("unicode_escape")  # blanks in it are written \040
        if folder.absolute().is_relative_to(point) and len(point) >= longest:
            found, longest = right.split()[0], len(point)
    return found


def damage_in(database: Path, limit_seconds: float) -> str | None:
    """What is wrong with a SQLite database, "" when nothing is; None: not known within the limit. Blocks."""
    try:
        return look_for_damage(database, limit_seconds)
    except sqlite3.Error as error:
        return str(error)


def look_for_damage(database: Path, limit_seconds: float) -> str | None:
    """As `damage_in`; raises `sqlite3.OperationalError` where it cannot be looked at."""
    deadline = time.monotonic() + limit_seconds
    try:
        with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            connection.set_progress_handler(lambda: time.monotonic() > deadline, 100_000)
            found = damage_of(connection) or _gap_in(connection)
            return None if time.monotonic() > deadline else found
    except sqlite3.OperationalError:
        if time.monotonic() > deadline:
            return None
        raise


def _gap_in(connection: sqlite3.Connection) -> str:
    """Pages that the disk has lost may be whole ones of before, in which later events are missing."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'events'").fetchone():
        return ""
    found = connection.execute(_LOG_WITH_GAP).fetchone()
    return f"events of conversation {found[0]} are missing" if found else ""
