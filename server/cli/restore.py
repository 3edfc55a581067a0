"""``drydock restore``: a data folder from a backup."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TextIO

from server.cli.backup import STANDARD, ending_cleanly, say
from server.cli.workspaces import SandboxWorkspaces
from server.db.errors import BackupError
from server.db.restore import Restore, RestoredBackup
from server.settings.settings import Settings


def restore(settings: Settings, out: TextIO, *, file: Path, replace: bool = False, take_over: bool = False) -> int:
    """Make the data folder of a backup, whole or not at all; returns the exit status."""
    if settings.database_url is not None:
        raise BackupError(
            "database_url is set: a backup is restored into a data folder that holds its database; leave database_url "
            "out, or restore that database with its own means"
        )
    data_dir = settings.data_dir.absolute()
    with ending_cleanly(), SandboxWorkspaces(settings) as sandboxes:
        made = Restore(data_dir, take_over=take_over, replace=replace, say=say, is_here=sandboxes.is_here)
        try:
            with nullcontext(sys.stdin.buffer) if file == STANDARD else file.open("rb") as source:
                restored = made.read(source, 0 if file == STANDARD else file.stat().st_size)
        except OSError as error:
            raise BackupError(f"{file} cannot be restored into {data_dir} ({error.strerror or error})") from error
    _tell(restored, data_dir, out, take_over=take_over)
    return 0


def _tell(restored: RestoredBackup, data_dir: Path, out: TextIO, *, take_over: bool) -> None:
    header, end = restored.header, restored.end
    out.write(
        f"Restored into {data_dir} what was there at {header.made_at:%Y-%m-%d %H:%M:%S} UTC: {end.conversations} "
        f"conversations, {end.events} events, {end.payloads} large payloads.\n"
    )
    waiting = len(end.workspaces) - len(restored.kept)
    if waiting:
        out.write(f"The files of {waiting} workspaces are put into their sandboxes when their conversations go on.\n")
    if restored.kept:
        out.write(f"{len(restored.kept)} sandboxes are still here, and keep the files that they have by now.\n")
    if restored.replaced is not None:
        out.write(f"What was in the folder before is in {restored.replaced}: remove it when nothing is missed.\n")
    if not restored.has_key:
        out.write(
            f"The key to its stored secrets is not in it: before the first start, put the file secret.key of then "
            f"(its id is {header.key_id}) into {data_dir}, or have users enter their secrets again.\n"
        )
    if not take_over:
        out.write(
            "It is a server of its own now: it knows no sandbox of the first one, takes up no work by itself, and its "
            "webhooks wait until they are made active again (--take-over: it is the first one, which runs no more).\n"
        )
