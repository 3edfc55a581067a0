"""`Reads`: how the database is read, by several at a time, each to its end, and none waiting for ever for its turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol, TypeVar

from sqlalchemy import Engine, Executable, Row, text
from sqlalchemy import exc as sql_errors
from sqlalchemy.ext.asyncio import AsyncEngine

from agent_core.errors import STORAGE_UNAVAILABLE
from server.db.errors import BUSY, DatabaseError

TURN_SECONDS: Final = 10.0
"""A read that has not begun by then is refused."""
ANSWER_SECONDS: Final = 120.0
"""And one that has begun is no longer waited for: it may be a look at every event of years."""

Rows = Sequence[Sequence[Any]]
_T = TypeVar("_T")


class Reads(Protocol):
    """The ways to read. Raises the driver's errors, and `DatabaseError` with the code `BUSY` for want of a turn."""

    on_busy: Callable[[str], None]
    """Called with a sentence for each read that is refused for want of a turn; must not block."""

    async def fetch(self, statement: str, parameters: Mapping[str, object]) -> Rows:
        """All rows of a plain statement with `:name` parameters."""

    async def select(self, statement: Executable) -> Sequence[Row[Any]]:
        """All rows of a statement of SQLAlchemy's."""

    async def close(self) -> None:
        """Wait for the reads that go on, close all connections, and take no more."""


class ThreadedReads:
    """Reads of a database that answers in the thread that asks (SQLite).

    Each is done whole in one of a few threads, so that none of those is taken for longer than the read itself takes,
    however much the event loop has to do before it hears of the end. What nobody waits for any more does not begin.
    """

    def __init__(self, engine: Engine, *, at_once: int, turn_seconds: float = TURN_SECONDS) -> None:
        self.on_busy: Callable[[str], None] = _say_nothing
        self._engine = engine
        self._at_once = at_once
        self.turn_seconds = turn_seconds
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="database-read")
        self._is_closed = False

    async def fetch(self, statement: str, parameters: Mapping[str, Any]) -> Rows:
        def read() -> Rows:
            connection = self._engine.raw_connection()
            try:
                cursor = connection.cursor()
                cursor.execute(statement, parameters)
                return cursor.fetchall()
            finally:
                connection.close()

        return await self._in_turn(read)

    async def select(self, statement: Executable) -> Sequence[Row[Any]]:
        def read() -> Sequence[Row[Any]]:
            with self._engine.connect() as connection:
                return connection.execute(statement).all()

        return await self._in_turn(read)

    async def close(self) -> None:
        self._is_closed = True
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)
        self._engine.dispose()

    async def _in_turn(self, read: Callable[[], _T]) -> _T:
        if self._is_closed:
            raise _closed()
        job = self._threads.submit(read)
        answer = asyncio.wrap_future(job)
        try:
            for seconds in (self.turn_seconds, ANSWER_SECONDS):
                await asyncio.wait([answer], timeout=seconds)
                if answer.done():
                    return answer.result()
                if job.cancel():
                    raise _busy(self, self._at_once, seconds)
        except asyncio.CancelledError:
            if self._is_closed:
                raise _closed() from None
            raise
        finally:
            answer.cancel()
        raise DatabaseError(f"The database has not answered within {ANSWER_SECONDS:g} s", code=STORAGE_UNAVAILABLE)


class PooledReads:
    """Reads of a database behind an asynchronous driver, over a few connections; each runs to its end, whoever waits.

    The engine's pool gives a turn within `turn_seconds`, or not at all.
    """

    def __init__(self, engine: AsyncEngine, *, at_once: int, turn_seconds: float = TURN_SECONDS) -> None:
        self.on_busy: Callable[[str], None] = _say_nothing
        self._engine = engine
        self._at_once = at_once
        self._turn_seconds = turn_seconds
        self._reads: set[asyncio.Task[Any]] = set()
        self._is_closed = False

    async def fetch(self, statement: str, parameters: Mapping[str, object]) -> Rows:
        async def read() -> Rows:
            async with self._engine.connect() as connection:
                return (await connection.execute(text(statement), parameters)).all()

        return await self._to_its_end(read)

    async def select(self, statement: Executable) -> Sequence[Row[Any]]:
        async def read() -> Sequence[Row[Any]]:
            async with self._engine.connect() as connection:
                return (await connection.execute(statement)).all()

        return await self._to_its_end(read)

    async def close(self) -> None:
        self._is_closed = True
        if self._reads:
            await asyncio.wait(self._reads)
        await self._engine.dispose()

    async def _to_its_end(self, read: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        if self._is_closed:
            raise _closed()
        task = asyncio.create_task(read(), name="database-read")
        self._reads.add(task)
        task.add_done_callback(self._finished)
        try:
            return await asyncio.shield(task)
        except sql_errors.TimeoutError as error:
            raise _busy(self, self._at_once, self._turn_seconds) from error

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._reads.discard(task)
        if not task.cancelled():
            task.exception()  # whoever still waits is told; nobody is to be warned that nobody did


def _say_nothing(_sentence: str) -> None:
    return


def _closed() -> DatabaseError:
    return DatabaseError("the database is closed")


def _busy(reads: Reads, at_once: int, seconds: float) -> DatabaseError:
    problem = f"The database is busy: {at_once} reads are at work, and this one had no turn within {seconds:g} s"
    reads.on_busy(problem)
    return DatabaseError(f"{problem}; try again in a moment", code=BUSY)
