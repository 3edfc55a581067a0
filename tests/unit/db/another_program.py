"""Somebody else at the same database."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Protocol

import asyncpg

from server.db.database import DATABASE_FILE, Database


class Answer(Protocol):
    def fetchone(self) -> Any: ...


class Program(Protocol):
    def execute(self, statement: str, values: Sequence[object] = ()) -> Answer: ...


class _OverPostgreSQL:
    """What tests use of `sqlite3.Connection`; each statement is committed."""

    def __init__(self, database: Database) -> None:
        self._url = database.engines.write.url.set(drivername="postgresql").render_as_string()
        self._rows: list[Any] = []

    def execute(self, statement: str, values: Sequence[object] = ()) -> Answer:
        for number in range(1, len(values) + 1):
            statement = statement.replace("?", f"${number}", 1)
        with ThreadPoolExecutor(1) as thread:  # the loop of this one runs already
            self._rows = thread.submit(asyncio.run, self._fetch(statement, values)).result()
        return self

    def fetchone(self) -> Any:
        return self._rows[0] if self._rows else None

    async def _fetch(self, statement: str, values: Sequence[object]) -> list[Any]:
        connection = await asyncpg.connect(self._url)
        try:
            found: list[Any] = await connection.fetch(statement, *values)
            return found
        finally:
            await connection.close()


@contextmanager
def another_program(database: Database) -> Iterator[Program]:
    """A connection of somebody else to the same database."""
    if database.engines.kind != "sqlite":
        yield _OverPostgreSQL(database)
        return
    connection = sqlite3.connect(
        database.data_dir / DATABASE_FILE, isolation_level=None, timeout=30, check_same_thread=False
    )
    try:
        yield connection
    finally:
        connection.close()
