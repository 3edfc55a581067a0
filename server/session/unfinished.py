"""Conversations that begin with a log from elsewhere (forks, imports): made whole, or nothing is left of them."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from agent_core.errors import DrydockError, EventStoreError
from agent_core.troubles import Trouble, coded
from server.db.data_folder import SEED_FOLDER
from server.db.database import Database
from server.db.storage_health import file_error


def seed_of(data_dir: Path, conversation_id: str) -> Path:
    """Where the files wait for the first start of a fork, which puts them into its workspace: a tar file."""
    return data_dir / SEED_FOLDER / f"{conversation_id}.tar"


async def waiting_files(database: Database, conversation_id: str) -> BinaryIO | None:
    """The tar file of those that wait for the conversation's first start, opened; None: none wait."""
    try:
        return (await database.waiting_files.fetch(conversation_id, seed_of(database.data_dir, conversation_id))).open(
            "rb"
        )
    except FileNotFoundError:
        return None


logger = logging.getLogger(__name__)

_SUFFIX = ".making"
_writing = ThreadPoolExecutor(1, thread_name_prefix="unfinished")


@asynccontextmanager
async def unfinished_conversation(database: Database, conversation_id: str) -> AsyncIterator[None]:
    """Context in which a conversation's log, files and at last its record are written; if it fails, all is removed.

    It is noted before anything is written. Raises `EventStoreError` where the data folder cannot be written.
    """
    data_dir = database.data_dir
    if conversation_id in database.untidy:  # an earlier attempt to make the same one
        await database.conversations.delete(conversation_id)
        database.untidy.discard(conversation_id)
    try:
        await asyncio.get_running_loop().run_in_executor(_writing, _note, data_dir, conversation_id)
        yield
    except BaseException as error:
        await _tidy(database, conversation_id, is_whole=False)
        if isinstance(error, OSError):
            raise file_error("Its files cannot be written", error) from error
        raise
    await _tidy(database, conversation_id, is_whole=True)


def remove_seed(data_dir: Path, conversation_id: str) -> None:
    """Remove the files that wait for a conversation's first start; raises `EventStoreError`."""
    try:
        seed_of(data_dir, conversation_id).unlink(missing_ok=True)
    except OSError as error:
        raise file_error("The files that wait for it could not be removed", error) from error


async def tidy_up(database: Database) -> None:
    """Remove what could not be removed when the making of a conversation ended, because the storage failed."""
    for conversation_id in list(database.untidy):
        with suppress(EventStoreError):
            is_whole = await database.conversations.get(conversation_id) is not None
            if conversation_id in database.untidy:  # nobody makes it meanwhile
                await _tidy(database, conversation_id, is_whole=is_whole)


async def _tidy(database: Database, conversation_id: str, *, is_whole: bool) -> None:
    """Strike the note, behind the removal of everything where it is not whole; what fails is done by `tidy_up`."""
    database.untidy.add(conversation_id)
    try:
        if not is_whole:
            seed_of(database.data_dir, conversation_id).unlink(missing_ok=True)
            await database.conversations.delete(conversation_id)
        _strike(database.data_dir, conversation_id)
    except (EventStoreError, OSError) as error:
        extra = coded(Trouble.LEFTOVERS_KEPT, conversation_id)
        text = "what the making of conversation %s has left is removed later: %s"
        logger.warning(text, conversation_id, error, extra=extra)
    else:
        database.untidy.discard(conversation_id)


async def remove_unfinished_forks(database: Database) -> None:
    """Remove what a killed server left without a record; call it while none is being made. Failures are logged."""
    try:
        found = await asyncio.to_thread(_names, database.data_dir)
        known = await database.conversations.ids() if found else set()
        for conversation_id in found:
            if conversation_id not in known:
                await database.conversations.delete(conversation_id)
                seed_of(database.data_dir, conversation_id).unlink(missing_ok=True)
                extra = coded(Trouble.LEFTOVERS_REMOVED, conversation_id)
                text = "removed conversation %s, which was not whole when the last server ended"
                logger.info(text, conversation_id, extra=extra)
            _strike(database.data_dir, conversation_id)
    except (DrydockError, OSError) as error:
        extra = coded(Trouble.LEFTOVERS_KEPT)
        logger.warning("conversations that were not whole could not be removed: %s", error, extra=extra)


def _note(data_dir: Path, conversation_id: str) -> None:
    place = _note_of(data_dir, conversation_id)
    place.parent.mkdir(mode=0o700, exist_ok=True)
    place.touch(mode=0o600)
    folder = os.open(place.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _strike(data_dir: Path, conversation_id: str) -> None:
    _note_of(data_dir, conversation_id).unlink(missing_ok=True)


def _note_of(data_dir: Path, conversation_id: str) -> Path:
    return seed_of(data_dir, conversation_id).with_suffix(_SUFFIX)


def _names(data_dir: Path) -> list[str]:
    folder = _note_of(data_dir, "any").parent
    if not folder.is_dir():
        return []
    return sorted({file.stem for file in folder.iterdir() if file.suffix in (_SUFFIX, ".tar")})
