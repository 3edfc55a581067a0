"""``drydock backup``: one file with everything that a server keeps, made while it runs."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TextIO

from server.cli.workspaces import SandboxWorkspaces
from server.db.backup import COPY_NAME, Backup, BackupEnd, BackupMade, BackupSource
from server.db.blobs import sync_folder
from server.db.data_folder import LAST_BACKUP, give_to_owner
from server.db.errors import BackupError
from server.db.temporary_files import temporary_file
from server.settings.settings import MEGABYTE, Settings

STANDARD: Final = Path("-")
"""Stands for standard input or output."""


INCOMPLETE: Final = 1
"""Exit status of a backup that was made, but for workspaces that could not be read."""
UNFINISHED: Final = "drydock-backup"
"""The temporary files beside a backup that is being made, whatever its own name: the next one there sweeps them."""
_NAMED: Final = 20
"""Conversations of which each has a line of its own."""


def backup(
    settings: Settings,
    out: TextIO,
    *,
    file: Path,
    replace: bool = False,
    with_key: bool = True,
    with_workspaces: bool = False,
    keep: int | None = None,
    quiet: bool = False,
) -> int:
    """Write the backup of a server's data folder into `file`, whole or not at all; returns the exit status.

    With `keep`, `file` is a folder, in which the newest so many of this server's backups stay. `quiet`: only what went
    wrong is said.
    """
    data_dir = settings.data_dir.absolute()
    source = BackupSource.of(data_dir, settings.database_url, has_payloads=settings.blob_store_class is None)
    kept = None if keep is None else KeptBackups(file, source.instance_id(), keep)
    target = file if kept is None else kept.next()
    tell = _no_words if quiet else say
    with ending_cleanly(), ExitStack() as stack:
        workspaces = stack.enter_context(SandboxWorkspaces(settings)) if with_workspaces else None
        reserve = settings.disk_reserve_mb * MEGABYTE if _same_disk(target, data_dir) else 0
        made = Backup(source, with_key=with_key, say=tell, workspaces=workspaces, reserve=reserve)
        try:
            target, (end, size) = _write(made, target, data_dir, replace=replace, kept=kept)
        except OSError as error:
            raise BackupError(f"the backup {target} cannot be written ({error.strerror or error})") from error
    _note(data_dir, target, size)
    if kept is not None and end.skipped and not end.workspaces:
        say("No workspace is in it, so that older backups are kept, however many.")
    elif kept is not None:
        kept.remove_older(target)
    if not quiet:
        lines = out if file != STANDARD else sys.stderr
        lines.writelines(f"{line}\n" for line in _lines(end, size, settings, target, with_key=with_key))
    return _complain(end)


def _lines(end: BackupEnd, size: int, settings: Settings, file: Path, *, with_key: bool) -> Iterator[str]:
    """What a backup is, and what is not in it by choice."""
    workspaces = f", {len(end.workspaces)} workspaces" if end.workspaces else ""
    yield (
        f"Backup of {settings.data_dir.absolute()} in {_named(file)}: {end.conversations} conversations, "
        f"{end.events} events, {end.payloads} large payloads{workspaces}, {size / 1024**2:.1f} MiB."
    )
    if with_key:
        yield "It holds the key to the stored secrets: keep it as safe as those, or use --without-key."
    else:
        yield "It does not hold the key to the stored secrets: keep a copy of secret.key elsewhere."
    if settings.blob_store_class is not None:
        yield "Large payloads are in a store of your own (blob_store_class), and not in it."
    if end.gone:
        yield f"Conversations that have no workspace any more: {', '.join(end.gone[:_NAMED])} ({len(end.gone)} in all)."
    for conversation_id, count in list(end.left_out.items())[:_NAMED]:
        yield f"{count} files in the workspace of {conversation_id} could not be read, and are not in it."


def _complain(end: BackupEnd) -> int:
    """Say what should be in a backup, and is not; returns the exit status."""
    if end.missing:
        say(f"{len(end.missing)} large payloads were damaged or missing on this server already ({end.missing[0]}).")
    for conversation_id, why in list(end.skipped.items())[:_NAMED]:
        say(f"The workspace of {conversation_id} is not in it: {why}")
    if len(end.skipped) > _NAMED:
        say(f"Nor are those of {len(end.skipped) - _NAMED} other conversations.")
    return INCOMPLETE if end.skipped else 0


def _named(file: Path) -> str:
    return "standard output" if file == STANDARD else str(file)


def _no_words(_line: str) -> None:
    pass


def _same_disk(file: Path, data_dir: Path) -> bool:
    with suppress(OSError):
        return file == STANDARD or file.parent.stat().st_dev == data_dir.stat().st_dev
    return False


class KeptBackups:
    """A folder with backups of one server, named by it and the time, of which the newest `keep` stay."""

    def __init__(self, folder: Path, instance_id: str, keep: int) -> None:
        if keep < 1:
            raise BackupError(f"--keep {keep}: keep one at least")
        if not folder.is_dir():
            raise BackupError(f"--keep is for a folder of backups, and {folder} is none; make it first")
        self._folder, self._keep = folder, keep
        self._prefix = f"drydock-{instance_id}-"

    def next(self) -> Path:
        """A name that is free: of this second, or of the first one after it that has no backup."""
        at = datetime.now(UTC)
        while (path := self._folder / f"{self._prefix}{at:%Y%m%dT%H%M%SZ}.drydock").exists():
            at += timedelta(seconds=1)
        return path

    def remove_older(self, newest: Path) -> None:
        """Remove those beyond the number; what is named otherwise stays.

        `newest` was made just now: whatever has a later name is of a clock that was wrong, and goes first.
        """
        name = re.compile(rf"{re.escape(self._prefix)}\d{{8}}T\d{{6}}Z\.drydock")
        named = (path for path in self._folder.iterdir() if name.fullmatch(path.name))
        found = sorted(named, key=lambda path: (path.name <= newest.name, path.name))
        for old in found[: -self._keep]:
            try:
                old.unlink(missing_ok=True)
            except OSError as error:
                say(f"{old} is older than the {self._keep} that are kept, and cannot be removed: {error.strerror}")


def _write(
    made: Backup, file: Path, data_dir: Path, *, replace: bool, kept: KeptBackups | None
) -> tuple[Path, BackupMade]:
    """Write it; returns what it is called then, which is another name where one of `kept` is taken meanwhile."""
    if file == STANDARD:
        if sys.stdout.isatty():
            raise BackupError("a backup is nothing to look at; send the output into a file or another program")
        with temporary_file(data_dir, COPY_NAME, ".db") as (copy, _):
            give_to_owner(copy, data_dir)  # who else could remove what a kill leaves of it?
            done = made.write(sys.stdout.buffer, copy, is_beside=False)
        sys.stdout.flush()
        return file, done
    if file.is_dir():
        raise BackupError(f"{file} is a folder; name a file in it, or say with --keep how many are to stay there")
    if not file.parent.is_dir():
        raise BackupError(f"there is no folder {file.parent}; make it first")
    if file.exists() and not replace:
        raise BackupError(f"{file} exists; name another file, or have it replaced with --force")
    with ExitStack() as stack:
        path, target = stack.enter_context(temporary_file(file.parent, UNFINISHED))
        copy, _ = stack.enter_context(temporary_file(file.parent, UNFINISHED, ".db"))
        done = made.write(target, copy)
        target.flush()
        os.fsync(target.fileno())
        if not replace and file.exists():
            if kept is None:
                raise BackupError(f"{file} was made meanwhile; name another file, or have it replaced with --force")
            file = kept.next()
        path.replace(file)
        sync_folder(file.parent)
    return file, done


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
    note = {"made_at": datetime.now(UTC).isoformat(), "file": _named(file), "bytes": size}
    path = data_dir / LAST_BACKUP
    try:
        with temporary_file(data_dir, LAST_BACKUP) as (temporary, content):
            content.write(json.dumps(note).encode())
            content.flush()
            give_to_owner(temporary, data_dir)
            temporary.replace(path)
    except OSError as error:
        say(f"when this backup was made could not be noted in {path}: {error.strerror or error}")


def say(line: str) -> None:
    """Tell people something that is no result: on standard error, since a backup may go to standard output."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
