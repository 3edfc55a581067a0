"""`Engines`: how the database is reached. SQLite's own ways are in `sqlite`, PostgreSQL's in `postgresql`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import URL, Executable, Row, create_engine, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from server.db import postgresql, sqlite
from server.db.errors import DatabaseError, database_error, is_damage, is_database_failure, is_lost
from server.db.event_rows import EventRow
from server.db.reads import ANSWER_SECONDS, TURN_SECONDS, PooledReads, Reads, Rows, ThreadedReads
from server.db.tables import read_json

_WRITE_CACHE_KIB = 512
_READ_CACHE_KIB = 256
"""Of each connection; the system keeps the file in memory anyway."""

_RETRIES = (0.05, 0.2, 0.75)
"""Seconds before it is read again what the disk did not give, or a database server that was just started anew."""

_INSTALL = "pip install 'drydock[postgresql]'"

_T = TypeVar("_T")
InsertEvents = Callable[[AsyncConnection, Sequence[EventRow]], Awaitable[set[str]]]


class DatabaseSettings(BaseModel):
    """Settings of the database: its address, and how careful it is.

    Attributes:
        url: of PostgreSQL, or SQLAlchemy's of another SQLite file; None keeps a SQLite database in the data folder.
        synchronous: SQLite only. FULL survives a power cut; NORMAL may then lose the last moments.
        busy_timeout_seconds: how long to wait for a lock that another program holds.
        read_connections: how many reads run at the same time. PostgreSQL has so many connections, and one that writes.
        close_timeout_seconds: how long closing waits for pending appends.
        touch_interval_seconds: how long counters of a conversation may wait for being written.
        inline_payload_bytes: larger event payloads go to the blob store.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    url: str | None = None
    synchronous: sqlite.Synchronous = "FULL"
    busy_timeout_seconds: float = Field(default=5.0, ge=0)
    read_connections: int = Field(default=4, ge=1)
    close_timeout_seconds: float = Field(default=10.0, gt=0)
    touch_interval_seconds: float = Field(default=1.0, gt=0)
    inline_payload_bytes: int = Field(default=1024 * 1024, ge=0)


@dataclass
class Engines:
    """An engine for the writer, the ways to read, and this database's ways to write.

    `check` raises `DatabaseGoneError` where what is written now would be lost, and `is_closed` tells of a connection
    that the database server has ended. A read runs to its end, whoever waits; `read_failed` is told why one did not
    succeed.
    """

    write: AsyncEngine
    reads: Reads
    insert_events: InsertEvents
    max_rows: int
    check: Callable[[], None] = lambda: None
    is_closed: Callable[[AsyncConnection], bool] = lambda _: False
    another: Callable[..., AsyncEngine] | None = None
    """Makes an engine to the same PostgreSQL, with these options of SQLAlchemy."""
    read_failed: Callable[[Exception], None] = lambda _: None

    @property
    def kind(self) -> str:
        """Which database it is: ``sqlite`` or ``postgresql``, for one."""
        return self.write.url.get_backend_name()

    async def fetch(self, statement: str, **parameters: object) -> Rows:
        """All rows of a plain statement with `:name` parameters."""
        return await self._read(lambda: self.reads.fetch(statement, parameters))

    async def select(self, statement: Executable) -> Sequence[Row[Any]]:
        return await self._read(lambda: self.reads.select(statement))

    async def dispose(self) -> None:
        """Wait for the reads that go on, close all connections, and take no more."""
        await self.reads.close()
        await self.write.dispose()

    async def _read(self, read: Callable[[], Awaitable[_T]]) -> _T:
        try:
            return await _repeated(read)
        except Exception as error:
            if not is_database_failure(error):
                raise
            self.read_failed(error)
            raise database_error("The database could not be read", error) from error


async def _repeated(read: Callable[[], Awaitable[_T]]) -> _T:
    """What `read` reads, tried again where the disk did not read a part, or the connection was lost."""
    for delay in _RETRIES:
        try:
            return await read()
        except Exception as error:
            if not (is_damage(error) or (is_lost(error) and not isinstance(error, TimeoutError))):
                raise
        await asyncio.sleep(delay)
    return await read()


def sqlite_url(path: Path) -> URL:
    """The URL of the SQLite database in the file `path`."""
    return URL.create("sqlite+aiosqlite", database=str(path))


def create_file(path: Path) -> None:
    """Make the file of a new SQLite database, readable for this user only (its companion files inherit that)."""
    try:
        path.touch(mode=0o600)
    except OSError as error:
        raise DatabaseError(f"the database {path} cannot be written ({error.strerror or error})") from error


def create_engines(url: URL | str, settings: DatabaseSettings) -> Engines:
    """Engines for `url`, not opened yet; `DatabaseError` where it cannot be used, or SQLite's library is too old."""
    url = _checked_url(url)
    at_once = settings.read_connections
    # Readers need no transaction, so nothing has to be undone when a connection goes back: that would cost every read
    # another turn to the database.
    as_reader: dict[str, Any] = {
        "pool_size": at_once,
        "max_overflow": 0,
        "isolation_level": "AUTOCOMMIT",
        "skip_autocommit_rollback": True,
        "pool_reset_on_return": None,
        "hide_parameters": True,
        "json_deserializer": read_json,
    }
    as_writer: dict[str, Any] = {
        "pool_size": 1,
        "max_overflow": 0,
        "hide_parameters": True,
        "json_deserializer": read_json,
    }
    if url.get_backend_name() != "sqlite":
        return _of_postgresql(url, as_writer, as_reader)
    write = create_async_engine(url, **as_writer)
    sqlite.check_version()
    read = create_engine(url.set(drivername="sqlite"), connect_args={"check_same_thread": False}, **as_reader)
    for engine, cache_kib in ((write.sync_engine, _WRITE_CACHE_KIB), (read, _READ_CACHE_KIB)):
        sqlite.configure(
            engine,
            synchronous=settings.synchronous,
            busy_timeout_seconds=settings.busy_timeout_seconds,
            cache_kib=cache_kib,
        )
    sqlite.begin_as_writer(write)
    file = sqlite.DatabaseFile(Path(str(url.database)))
    return Engines(write, ThreadedReads(read, at_once=at_once), sqlite.insert_events, sqlite.MAX_ROWS, file.check)


def _of_postgresql(url: URL, as_writer: dict[str, Any], as_reader: dict[str, Any]) -> Engines:
    write = postgresql.create_engine(url, name="drydock writer", answer_seconds=postgresql.WRITE_SECONDS, **as_writer)
    as_reader["pool_timeout"] = TURN_SECONDS
    read = postgresql.create_engine(url, name="drydock readers", answer_seconds=ANSWER_SECONDS, **as_reader)
    reads = PooledReads(read, at_once=as_reader["pool_size"])
    seconds = postgresql.WRITE_SECONDS
    another = partial(postgresql.create_engine, url, name="drydock", answer_seconds=seconds, hide_parameters=True)
    return Engines(
        write, reads, postgresql.insert_events, postgresql.MAX_ROWS, is_closed=postgresql.is_closed, another=another
    )


def _checked_url(url: URL | str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise DatabaseError(
            "the database URL cannot be read; it looks like postgresql://user:password@host/name"
        ) from error
    if parsed.drivername in postgresql.SPELLINGS:
        parsed = parsed.set(drivername=postgresql.DRIVER)
    shown = parsed.set(query={}).render_as_string()
    try:
        dialect = parsed.get_dialect(_is_async=True)
        dialect.import_dbapi()
    except (NoSuchModuleError, ImportError) as error:
        raise DatabaseError(
            f"the database URL {shown} needs the driver {parsed.drivername}, which is not installed"
            f" (PostgreSQL: postgresql://…, and `{_INSTALL}` in the server's environment)"
        ) from error
    if parsed.get_backend_name() not in {"sqlite", "postgresql"} or dialect.driver not in {"aiosqlite", "asyncpg"}:
        raise DatabaseError(f"the database URL {shown} names neither postgresql:// nor sqlite+aiosqlite://")
    if parsed.get_backend_name() == "sqlite" and parsed.database in {None, "", ":memory:"}:
        raise DatabaseError("the database URL names no file; a database in memory would keep nothing")
    return parsed
