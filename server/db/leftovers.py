"""What killed processes leave behind: half-written files and rows of nobody, removed once, at the start of a server."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from agent_core.errors import DrydockError
from agent_core.troubles import Trouble, coded
from server.db.backup import COPY_NAME
from server.db.data_folder import LAST_BACKUP, PLUGIN_SCRATCH, UNPACKING
from server.db.database import Database
from server.db.tables import chat_turns, conversations, feedback, inbox, webhook_positions, webhooks
from server.db.temporary_files import sweep

logger = logging.getLogger(__name__)

HALF_FILES: Final = (
    *(".probe-*", ".instance-id.*", ".secret.key.*", "sandboxes/*/*.new"),
    *(f"{PLUGIN_SCRATCH}*", f"{UNPACKING}*"),
)
"""In the data folder: what only whoever holds its lock makes, and removes or renames when it is whole."""
SCRATCH: Final = ("drydock-compiled-", "drydock-check-")
"""What temporary folders of ours begin with; whoever needs one holds a lock on it (earlier releases: for a moment)."""
OLD_SECONDS: Final = 60.0
"""Until then a folder may not have got its lock yet."""
MOST: Final = 1000
"""Files and folders at one start."""


async def remove_leftovers(database: Database) -> None:
    """Remove them, and say so in one line; failures are logged. Call it while nothing is being made."""
    try:
        files = await asyncio.to_thread(_remove_files, database.data_dir, Path(tempfile.gettempdir()))
        rows = await database.writer.change(_remove_rows)
    except (DrydockError, OSError) as error:
        extra = coded(Trouble.LEFTOVERS_KEPT)
        logger.warning("what killed processes have left could not be removed: %s", error, extra=extra)
        return
    if files or rows:
        extra = coded(Trouble.LEFTOVERS_REMOVED, times=files + rows)
        logger.info("removed what killed processes have left: %d files and folders, %d rows", files, rows, extra=extra)


def _remove_files(data_dir: Path, scratch: Path) -> int:
    removed = 0
    for pattern in HALF_FILES:
        for path in list(data_dir.glob(pattern))[: MOST - removed]:
            with suppress(OSError):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
                removed += 1
    removed += sweep(data_dir, COPY_NAME, ".db") + sweep(data_dir, LAST_BACKUP)
    with os.scandir(scratch) as entries:
        old = [entry.path for entry in entries if entry.name.startswith(SCRATCH) and _is_left_by_one_of_ours(entry)]
    for folder in old[:MOST]:  # perhaps of another server: nothing that this one has to tell of
        shutil.rmtree(folder, ignore_errors=True)
    return removed


def _is_left_by_one_of_ours(entry: os.DirEntry[str]) -> bool:
    try:
        found = entry.stat(follow_symlinks=False)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            return False
        if time.time() - found.st_mtime < OLD_SECONDS:
            return False
        handle = os.open(entry.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


async def _remove_rows(connection: AsyncConnection) -> int:
    """Those about conversations that were deleted while they were written, or by a release that left webhooks there."""
    removed = 0
    for table in (chat_turns, feedback, webhook_positions, webhooks, inbox):
        log = table.c.conversation_id
        of_nobody = log.is_not(None) & log.not_in(select(conversations.c.id))
        removed += (await connection.execute(delete(table).where(of_nobody))).rowcount
    return removed
