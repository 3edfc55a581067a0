"""What killed processes leave behind: half-written files and rows of nobody, removed once, at the start of a server."""

from __future__ import annotations

import asyncio
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
from server.db.data_folder import PLUGIN_SCRATCH, UNPACKING
from server.db.database import Database
from server.db.tables import chat_turns, conversations, feedback, webhook_positions
from server.db.temporary_files import sweep

logger = logging.getLogger(__name__)

HALF_FILES: Final = (
    *(".probe-*", ".instance-id.*", ".secret.key.*", "sandboxes/*/*.new"),
    *(f"{PLUGIN_SCRATCH}*", f"{UNPACKING}*"),
)
"""In the data folder: what only whoever holds its lock makes, and removes or renames when it is whole."""
SCRATCH: Final = ("drydock-compiled-", "drydock-check-")
"""What temporary folders of ours begin with, each of which is needed for minutes at most."""
OLD_SECONDS: Final = 24 * 3600.0
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
    removed += sweep(data_dir, COPY_NAME, ".db")
    with os.scandir(scratch) as entries:
        old = [entry.path for entry in entries if entry.name.startswith(SCRATCH) and _is_old_and_ours(entry)]
    for folder in old[: MOST - removed]:
        shutil.rmtree(folder, ignore_errors=True)
        removed += 1
    return removed


def _is_old_and_ours(entry: os.DirEntry[str]) -> bool:
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and time.time() - found.st_mtime > OLD_SECONDS


async def _remove_rows(connection: AsyncConnection) -> int:
    """Those about conversations that were deleted while they were written."""
    removed = 0
    for table in (chat_turns, feedback, webhook_positions):
        of_nobody = table.c.conversation_id.not_in(select(conversations.c.id))
        removed += (await connection.execute(delete(table).where(of_nobody))).rowcount
    return removed
