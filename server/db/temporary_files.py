"""Files that are written under another name first: locked while whoever writes them lives, and swept when nobody does.

A kill (``kill -9``) leaves such a file behind without its lock, which tells it from one that is being written.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

SQLITE_SUFFIXES: Final = ("-journal", "-wal", "-shm")
_MARK: Final = r"\.[0-9a-f]{8}"


@contextmanager
def temporary_file(folder: Path, name: str, suffix: str = "") -> Iterator[tuple[Path, BinaryIO]]:
    """A new file in `folder`, for this user alone: its path, and itself open for writing; in the end it is gone.

    What killed processes have left of files with this name and suffix is removed first. With the suffix ``.db`` it may
    be used as a database meanwhile. Raises `OSError`.
    """
    sweep(folder, name, suffix)
    path, file = _made(folder, name, suffix)
    try:
        with file:
            yield path, file
    finally:
        _remove(path)


def _made(folder: Path, name: str, suffix: str) -> tuple[Path, BinaryIO]:
    while True:
        path = folder / f".{name}.{secrets.token_hex(4)}{suffix}"
        file = open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")  # noqa: SIM115
        with suppress(OSError):  # a disk without locks: nobody else gets one there, either
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with suppress(FileNotFoundError):
            if os.path.samestat(path.stat(), os.fstat(file.fileno())):
                return path, file
        file.close()  # swept before it was locked


def sweep(folder: Path, name: str, suffix: str = "") -> int:
    """Remove the files of this name and suffix that nobody writes any more; returns how many."""
    wanted = re.compile(rf"\.{re.escape(name)}{_MARK}{re.escape(suffix)}")
    removed = 0
    with suppress(OSError), os.scandir(folder) as entries:
        for path in [folder / entry.name for entry in entries if wanted.fullmatch(entry.name)]:
            with suppress(OSError), path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(path)
                removed += 1
    return removed


def _remove(path: Path) -> None:
    for suffix in ("", *(SQLITE_SUFFIXES if path.suffix == ".db" else ())):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
