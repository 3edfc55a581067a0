"""Forks that a killed server left half made: each is noted before anything of it is written, and removed at a start."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

from agent_core.errors import DrydockError
from server.db.database import Database
from server.session.seeds import seed_of

logger = logging.getLogger(__name__)

_SUFFIX = ".making"


def note(data_dir: Path, conversation_id: str) -> None:
    """Note, durably, that this fork is being made; blocks for as long as the disk does.

    Raises:
        OSError: it cannot be noted.
    """
    place = _note_of(data_dir, conversation_id)
    place.parent.mkdir(mode=0o700, exist_ok=True)
    place.touch(mode=0o600)
    folder = os.open(place.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def strike(data_dir: Path, conversation_id: str) -> None:
    """It is whole, or nothing is left of it."""
    _note_of(data_dir, conversation_id).unlink(missing_ok=True)


async def remove_unfinished_forks(database: Database) -> None:
    """Remove the log and the files of each fork without a conversation; call it while no fork is being made.

    What cannot be removed is logged, and left to the next start.
    """
    try:
        found = await asyncio.to_thread(_names, database.data_dir)
        known = await database.conversations.ids() if found else set()
        for conversation_id in found:
            if conversation_id not in known:
                await database.conversations.delete(conversation_id)
                seed_of(database.data_dir, conversation_id).unlink(missing_ok=True)
                logger.info("removed the fork %s, which was not whole when the last server ended", conversation_id)
            strike(database.data_dir, conversation_id)
    except (DrydockError, OSError) as error:
        logger.warning("forks that were not whole could not be removed: %s", error)


def _note_of(data_dir: Path, conversation_id: str) -> Path:
    return seed_of(data_dir, conversation_id).with_suffix(_SUFFIX)


def _names(data_dir: Path) -> list[str]:
    """The ids of all forks that are noted, or that have files."""
    folder = _note_of(data_dir, "any").parent
    if not folder.is_dir():
        return []
    return sorted({file.stem for file in folder.iterdir() if file.suffix in (_SUFFIX, ".tar")})
