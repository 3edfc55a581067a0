"""Room in SQLite's write-ahead log: made once, so that no append has to wait for the file to grow."""

from __future__ import annotations

import logging
import os

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from agent_core.errors import EventStoreError
from server.db.engine import Engines
from server.db.sqlite import WAL_PAGES_BEFORE_CHECKPOINT
from server.db.writer import Writer

_PAGE_BYTES = 4096
_ROOM_BYTES = WAL_PAGES_BEFORE_CHECKPOINT * _PAGE_BYTES
_TABLE = "room_in_the_log"

_log = logging.getLogger(__name__)


async def make_room(engines: Engines, writer: Writer) -> None:
    """Let the write-ahead log have its full length already; does nothing with another database than SQLite.

    To sync a file that has grown takes the disk about twice as long as to sync one that was written over, and a log
    that is new grows with each append until its first checkpoint. So as much as that is written through it and
    forgotten again; the database's file keeps the room for the events to come. A failure is noted in the log only.
    """
    url = engines.write.url
    if url.get_backend_name() != "sqlite":
        return
    try:
        if _size(f"{url.database}-wal") < _ROOM_BYTES:
            await writer.change(_fill)
        await writer.change(_clear)  # also what a crash has left
    except EventStoreError as error:
        _log.warning("no room could be made in the database's log: %s", error)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


async def _fill(connection: AsyncConnection) -> None:
    await connection.execute(text(f"DROP TABLE IF EXISTS {_TABLE}"))
    await connection.execute(text(f"CREATE TABLE {_TABLE} (zeros BLOB)"))
    await connection.execute(text(f"INSERT INTO {_TABLE} VALUES (zeroblob({_ROOM_BYTES}))"))  # noqa: S608 - constants


async def _clear(connection: AsyncConnection) -> None:
    await connection.execute(text(f"DROP TABLE IF EXISTS {_TABLE}"))
