"""`move_to_postgresql`: everything that a server keeps in SQLite into an empty PostgreSQL, compared row by row."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from sqlalchemy import JSON, Boolean, Column, Table, TypeDecorator, insert, text
from sqlalchemy.ext.asyncio import AsyncConnection

from agent_core.events.event import utc_now
from server.auth.audit import SYSTEM, Actor, AuditEntry
from server.db import postgresql
from server.db.blobs import PayloadLostError
from server.db.database import DATABASE_FILE, Database, open_database, upgrade
from server.db.engine import DatabaseSettings, create_engines
from server.db.errors import DatabaseError, database_error, is_database_failure
from server.db.progress import ProgressTeller, Say
from server.db.tables import PlainText, metadata, payloads

_COPY_SECONDS: Final = 86_400.0
"""So long one table may take."""
_FETCHED: Final = 64
"""Rows that are read back at a time, of up to a mebibyte each."""


class Moved(NamedTuple):
    """How many rows each table has, in how many texts `NUL` was replaced, and the target without its password."""

    rows: dict[str, int]
    replaced: int
    target: str


async def move_to_postgresql(
    data_dir: Path, source: DatabaseSettings, url: str, say: Say, actor: Actor = SYSTEM
) -> Moved:
    """Copy all rows in one transaction: whole and compared, or nothing, however it ends. The source stays as it is.

    Raises `InstanceRunningError` (the server runs), `DatabaseError` (the target is not empty, or cannot be written; a
    row cannot be kept there), or what `open_database` raises of the source.
    """
    engines = create_engines(url, DatabaseSettings())
    shown = engines.write.url.render_as_string()
    if engines.kind == "sqlite":
        raise DatabaseError("the target is SQLite; name a PostgreSQL: postgresql://user:password@host/name")
    if source.url is None and not (data_dir / DATABASE_FILE).exists():
        raise DatabaseError(f"there is no database {data_dir / DATABASE_FILE}; name the data folder with --data-dir")
    try:
        async with open_database(data_dir, source) as present:
            await upgrade(engines.write)
            with closing(sqlite3.connect(str(present.engines.write.url.database))) as database:
                async with engines.write.begin() as connection:
                    await postgresql.wait_for_upgrade(connection)
                    await _refuse_filled(connection, shown)
                    tables = [_MovedTable(table, database, ProgressTeller(say)) for table in metadata.sorted_tables]
                    for table in tables:
                        await table.copy(connection)
                    for table in tables:
                        await table.compare(connection)
                    large = await _move_payloads(present, connection, ProgressTeller(say))
                    await present.audit.append(connection, AuditEntry("database.moved", actor, ("database", shown)))
    except Exception as error:
        if isinstance(error, DatabaseError) or not is_database_failure(error):
            raise
        raise database_error("The database could not be moved, and nothing was", error) from error
    finally:
        await engines.dispose()
    rows = {str(one.table): one.rows for one in tables}
    rows[str(payloads)] += large
    return Moved(rows, sum(one.replaced for one in tables), shown)


async def _move_payloads(present: Database, connection: AsyncConnection, progress: ProgressTeller) -> int:
    """Copy the large payloads, which are files there, into rows; returns how many. What is lost there is lost here."""
    used = [(log, digest) for log, some in (await present.events.blobs_in_use()).items() for digest in sorted(some)]
    moved = 0
    for number, (log, digest) in enumerate(used, 1):
        with suppress(PayloadLostError):  # or they are in a store of the operator's own, where they stay
            data = await present.blobs.get(log, digest)
            row = {"conversation_id": log, "digest": digest, "stored_at": utc_now(), "data": data}
            await connection.execute(insert(payloads), row)
            moved += 1
        progress.tell("copying large payloads", number, len(used))
    return moved


async def _refuse_filled(connection: AsyncConnection, shown: str) -> None:
    """Refuse a target with any row; nobody else writes to it until the end of the transaction."""
    for table in metadata.sorted_tables:
        await connection.execute(text(f'LOCK TABLE "{table}" IN EXCLUSIVE MODE'))
        if await connection.scalar(text(f'SELECT EXISTS (SELECT 1 FROM "{table}")')):  # noqa: S608 - our own names
            raise DatabaseError(
                f"the database {shown} is not empty (there are rows in {table}): name a new one, so that nothing in it"
                " is mixed up"
            )


class _MovedTable:
    """One table on its way: what was read of it, to be found again at the other end."""

    def __init__(self, table: Table, source: sqlite3.Connection, progress: ProgressTeller) -> None:
        self.table = table
        self.rows = 0
        self.replaced = 0
        self._source = source
        self._progress = progress
        self._sum = 0  # of the rows' digests: the two ends have the rows in orders of their own
        self._columns = list(table.columns)
        self._names = [column.name for column in self._columns]

    async def copy(self, connection: AsyncConnection) -> None:
        driver: Any = (await connection.get_raw_connection()).driver_connection
        ((whole,),) = self._source.execute(f'SELECT count(*) FROM "{self.table}"')  # noqa: S608 - our own names

        def records() -> Iterator[tuple[object, ...]]:
            for row in self._read():
                self.rows += 1
                self._sum += _digest(row)
                self._progress.tell(f"copying {self.table}", self.rows, whole)
                yield row

        await driver.copy_records_to_table(
            str(self.table), records=records(), columns=self._names, timeout=_COPY_SECONDS
        )

    async def compare(self, connection: AsyncConnection) -> None:
        """Read everything back; `DatabaseError` unless it is what was read first."""
        driver: Any = (await connection.get_raw_connection()).driver_connection
        names = ", ".join(
            f'"{column.name}"::text' if isinstance(column.type, JSON) else f'"{column.name}"'
            for column in self._columns
        )
        found = rows = 0
        query = f'SELECT {names} FROM "{self.table}"'  # noqa: S608 - our own names
        async for record in driver.cursor(query, prefetch=_FETCHED):
            rows += 1
            found += _digest(tuple(record))
            self._progress.tell(f"comparing {self.table}", rows, self.rows)
        if (rows, found) != (self.rows, self._sum):
            raise DatabaseError(
                f"the table {self.table} is not the same at the other end ({rows} of {self.rows} rows); nothing was"
                " moved"
            )

    def _read(self) -> Iterator[tuple[object, ...]]:
        names = ", ".join(f'"{name}"' for name in self._names)
        for row in self._source.execute(f'SELECT {names} FROM "{self.table}"'):  # noqa: S608 - our own names
            yield tuple(self._kept(row, number) for number in range(len(row)))

    def _kept(self, row: tuple[object, ...], number: int) -> object:
        """A value as PostgreSQL keeps it."""
        value, column = row[number], self._columns[number]
        if value is None:
            return None
        if isinstance(column.type, Boolean):
            return bool(value)
        if isinstance(column.type, JSON):
            try:
                json.loads(str(value), parse_constant=_refuse_constant)
            except ValueError:
                raise self._impossible(row, number) from None
        elif isinstance(column.type, PlainText) and isinstance(value, str) and "\0" in value:
            self.replaced += 1
            return value.replace("\0", "\ufffd")
        elif not isinstance(value, _python_type(column)):
            raise self._impossible(row, number)
        return value

    def _impossible(self, row: tuple[object, ...], number: int) -> DatabaseError:
        key = ", ".join(str(row[self._names.index(column.name)]) for column in self.table.primary_key)
        return DatabaseError(
            f"{self._names[number]} of {key} in the table {self.table} is damaged: delete that (drydock doctor names"
            " conversations with damage), or restore a backup; nothing was moved"
        )


def _python_type(column: Column[Any]) -> type:
    """What the driver has for a value of this column."""
    kind = column.type
    return kind.impl_instance.python_type if isinstance(kind, TypeDecorator) else kind.python_type


def _refuse_constant(name: str) -> object:
    raise ValueError(name)


def _digest(row: tuple[object, ...]) -> int:
    return int.from_bytes(hashlib.sha256(repr(row).encode("utf-8", "surrogatepass")).digest(), "big")
