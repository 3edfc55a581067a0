"""SQLite's own ways: the set-up of connections, and its fast append."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import aiosqlite
from sqlalchemy import Engine, event
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.pool import PoolProxiedConnection

from server.db.errors import DatabaseError, DatabaseGoneError
from server.db.event_rows import EventRow

_OLDEST_VERSION = (3, 35)

Synchronous = Literal["FULL", "NORMAL"]

MAX_ROWS = 512
"""Rows of one statement: ten parameters each, far below SQLite's limit of 32,766."""

WAL_PAGES_BEFORE_CHECKPOINT = 1000
"""SQLite's default; a file that grows is slow to sync."""

_COPIED_PAGES = 2048

_MAX_WAL_BYTES = 32 * 1024 * 1024

_INSERT = (
    "INSERT INTO events (conversation_id, id, kind, source, cause, timestamp, size, blob, payload) "
    "SELECT column1, column2, column3, column4, column5, column6, column7, column8, column9 "
    "FROM (VALUES {rows}) AS new "
    "WHERE NOT EXISTS (SELECT 1 FROM owners WHERE conversation_id = new.column1 AND epoch > new.column10) "
    "RETURNING conversation_id"
)


def check_version() -> None:
    """See that the machine's SQLite library knows what is used here (``RETURNING``)."""
    if sqlite3.sqlite_version_info < _OLDEST_VERSION:
        required = ".".join(map(str, _OLDEST_VERSION))
        raise DatabaseError(
            f"the SQLite library is version {sqlite3.sqlite_version}, {required} or newer is needed; "
            "use a Python that is built with a newer one"
        )


def copy_database(source: Path, target: Path, progress: Callable[[int, int], None] = lambda left, whole: None) -> None:
    """Copy a database, which others may use and change meanwhile, as it is at one moment; nobody waits for it.

    `target` is one file then. `progress` is told how many pages are left, of how many. Raises `sqlite3.Error`.
    """
    with (
        closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None)) as present,
        closing(sqlite3.connect(target, isolation_level=None)) as copy,
    ):
        copy.execute("PRAGMA synchronous = OFF")  # whoever needs it to last syncs the file
        # A read that stays open: the pages are those of one moment, and no change begins the copy anew.
        present.execute("BEGIN")
        present.execute("SELECT count(*) FROM sqlite_master").fetchone()
        present.backup(copy, pages=_COPIED_PAGES, progress=lambda _status, left, whole: progress(left, whole))
        present.execute("ROLLBACK")
        copy.execute("PRAGMA journal_mode = DELETE")


def damage_of(database: sqlite3.Connection) -> str:
    """What is wrong with the pages of a database; "" when nothing is. `OperationalError`: it cannot be looked at."""
    try:
        found = str(database.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError as error:
        return str(error)
    return "" if found == "ok" else found


class DatabaseFile:
    """The file that was opened. Whoever has it open does not notice when it is removed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._identity: tuple[int, int] | None = None

    def check(self) -> None:
        """Raise `DatabaseGoneError` unless the file of the first call is still there."""
        try:
            found = os.stat(self._path)
            identity = (found.st_dev, found.st_ino)
        except FileNotFoundError:
            identity = None
        if identity is None or identity != (self._identity or identity):
            raise DatabaseGoneError(
                f"the file {self._path} was removed or replaced while it is in use; "
                "stop the server, restore the file and start again"
            )
        self._identity = identity


def configure(engine: Engine, *, synchronous: Synchronous, busy_timeout_seconds: float, cache_kib: int) -> None:
    """Set up every connection that `engine` makes from now on; its transactions begin as writers."""

    def on_connect(connection: Any, record: object) -> None:
        # The driver must not open transactions by itself: `on_begin` does, and a lone statement commits itself.
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in (
            f"busy_timeout = {round(busy_timeout_seconds * 1000)}",
            "journal_mode = WAL",
            f"synchronous = {synchronous}",
            "foreign_keys = ON",
            f"cache_size = -{cache_kib}",
            f"wal_autocheckpoint = {WAL_PAGES_BEFORE_CHECKPOINT}",
            f"journal_size_limit = {_MAX_WAL_BYTES}",
        ):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    event.listen(engine, "connect", on_connect)


def begin_as_writer(engine: AsyncEngine) -> None:
    """Let every transaction of `engine` take the write lock first, so that none fails half way for want of it."""
    event.listen(engine.sync_engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))


@lru_cache(maxsize=MAX_ROWS)
def _insert_statement(rows: int) -> str:
    return _INSERT.format(rows=",".join(["(?,?,?,?,?,?,?,?,?,?)"] * rows))


def _driver(connection: PoolProxiedConnection) -> aiosqlite.Connection:
    driver = connection.driver_connection
    if not isinstance(driver, aiosqlite.Connection):
        raise TypeError(f"this engine's driver is {type(driver).__name__}, not aiosqlite")
    return driver


async def insert_events(connection: AsyncConnection, rows: Sequence[EventRow]) -> set[str]:
    """Append `rows` (at most `MAX_ROWS`) durably in one statement; see `event_rows.insert_events`.

    One statement is one hop to the connection's thread, which halves the time of a lone append.
    """
    sync_connection = connection.sync_connection
    if sync_connection is None or sync_connection.invalidated:
        driver = _driver(await connection.get_raw_connection())
    else:
        driver = _driver(sync_connection.connection)  # the same, without the turn through SQLAlchemy's greenlet
    parameters: list[object] = []
    for row in rows:
        parameters += row
    stored = list(await driver.execute_fetchall(_insert_statement(len(rows)), parameters))
    return set() if len(stored) == len(rows) else {row[0] for row in rows} - {log for (log,) in stored}
