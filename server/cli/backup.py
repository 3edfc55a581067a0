"""``drydock backup``: one file with everything that a server keeps, made while it runs."""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TextIO

from server.db.backup import Backup, BackupError, BackupMade, BackupSource
from server.db.blobs import sync_folder
from server.db.data_folder import LAST_BACKUP
from server.settings.settings import Settings

STANDARD: Final = Path("-")
"""Stands for standard input or output."""


def backup(settings: Settings, out: TextIO, *, file: Path, replace: bool = False, with_key: bool = True) -> int:
    """Write the backup of a server's data folder into `file`, whole or not at all; returns the exit status."""
    data_dir = settings.data_dir.absolute()
    source = BackupSource.of(data_dir, settings.database_url, has_payloads=settings.blob_store_class is None)
    with ending_cleanly():
        try:
            end, size = _write(Backup(source, with_key=with_key, say=say), file, data_dir, replace=replace)
        except OSError as error:
            raise BackupError(f"the backup {file} cannot be written ({error.strerror or error})") from error
    _note(data_dir, file, size)
    lines = out if file != STANDARD else sys.stderr
    lines.write(
        f"Backup of {data_dir} in {file}: {end.conversations} conversations, {end.events} events, {end.payloads} large "
        f"payloads, {size / 1024**2:.1f} MiB.\n"
    )
    if with_key:
        lines.write("It holds the key to the stored secrets: keep it as safe as those, or use --without-key.\n")
    else:
        lines.write("It does not hold the key to the stored secrets: keep a copy of secret.key elsewhere.\n")
    if settings.blob_store_class is not None:
        lines.write("Large payloads are in a store of your own (blob_store_class), and not in it.\n")
    if end.missing:
        lines.write(
            f"{len(end.missing)} large payloads were damaged or missing on this server already ({end.missing[0]}).\n"
        )
    return 0


def _write(made: Backup, file: Path, data_dir: Path, *, replace: bool) -> BackupMade:
    name = secrets.token_hex(4)
    if file == STANDARD:
        if sys.stdout.isatty():
            raise BackupError("a backup is nothing to look at; send the output into a file or another program")
        done = made.write(sys.stdout.buffer, data_dir / f".backup-{name}.db")
        sys.stdout.flush()
        return done
    if file.is_dir():
        raise BackupError(f"{file} is a folder; name a file in it")
    if not file.parent.is_dir():
        raise BackupError(f"there is no folder {file.parent}; make it first")
    if file.exists() and not replace:
        raise BackupError(f"{file} exists; name another file, or have it replaced with --force")
    temporary = file.with_name(f".{file.name}.{name}")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as target:
            done = made.write(target, temporary.with_name(f"{temporary.name}.db"))
            target.flush()
            os.fsync(target.fileno())
        if not replace and file.exists():
            raise BackupError(f"{file} was made meanwhile; name another file, or have it replaced with --force")
        temporary.replace(file)
        sync_folder(file.parent)
    finally:
        temporary.unlink(missing_ok=True)
    return done


@contextmanager
def ending_cleanly() -> Iterator[None]:
    """Let every way in which the command is told to end remove what it has begun."""

    def end(number: int, _frame: Any) -> None:
        raise BackupError(f"broken off by {signal.Signals(number).name}; nothing was written")

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, end) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _note(data_dir: Path, file: Path, size: int) -> None:
    """Note for `drydock doctor` when the last backup was made."""
    note = {"made_at": datetime.now(UTC).isoformat(), "file": str(file), "bytes": size}
    path = data_dir / LAST_BACKUP
    temporary = path.with_name(f".{path.name}")
    try:
        temporary.write_text(json.dumps(note), "utf-8")
        owner = data_dir.stat()
        os.chown(temporary, owner.st_uid, owner.st_gid)
        temporary.chmod(0o600)
        temporary.replace(path)
    except OSError as error:
        say(f"when this backup was made could not be noted in {path}: {error.strerror or error}")


def say(line: str) -> None:
    """Tell people something that is no result: on standard error, since a backup may go to standard output."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
