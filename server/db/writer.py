"""The one writer of a process: it commits the pending appends of all conversations together (group commit).

It is also the place where every other change to the database waits for its turn, so that no two of them ever
compete for a lock.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from agent_core.errors import EventStoreError, StaleOwnerError
from server.db import event_rows
from server.db.engine import Engines, database_error, is_conflict, is_outage
from server.db.errors import DatabaseError
from server.db.event_rows import EventRow

MAX_PENDING = 50_000
MAX_BATCH_BYTES = 8 * 1024 * 1024
MAX_CACHED_TAILS = 4096

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

Change = Callable[[AsyncConnection], Awaitable[_T]]


class Record(NamedTuple):
    """An event without its place in the log: the payload is inline, or in the blob store under the digest `blob`."""

    kind: str
    source: str
    cause: int | None
    timestamp: int
    payload: bytes | None
    blob: str | None


@dataclass(slots=True, eq=False)
class _Append:
    log: str
    epoch: int
    records: Sequence[Record] | None  # None: being prepared, keeps its place in the order meanwhile
    done: asyncio.Future[int]


@dataclass(slots=True, eq=False)
class _Change:
    log: str | None
    apply: Change[Any]
    done: asyncio.Future[Any]


class Writer:
    """Commits appends and changes, in the order of the calls; an async context manager.

    Whoever calls waits until the change is durable, so at most one change per caller is pending; `MAX_PENDING` bounds
    their number. A failed transaction fails exactly the calls in it; ids are given anew, so the log stays gapless.
    """

    def __init__(self, engines: Engines, *, close_timeout_seconds: float) -> None:
        self._engines = engines
        self._close_timeout_seconds = close_timeout_seconds
        self._queue: deque[_Append | _Change] = deque()
        self._tails: OrderedDict[str, int] = OrderedDict()
        self._wake = asyncio.Event()
        self._closing = False
        self._task: asyncio.Task[None] | None = None
        self._connection: AsyncConnection | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="database-writer")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def append(self, log: str, records: Sequence[Record], *, epoch: int) -> int:
        """Store `records` at the end of `log`, durably, and return the id of the first.

        Raises:
            StaleOwnerError: a later epoch owns the log.
            EventStoreError: they could not be stored.
        """
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._enqueue(_Append(log, epoch, records, done))
        return await done

    async def append_prepared(self, log: str, prepare: Callable[[], Awaitable[Sequence[Record]]], *, epoch: int) -> int:
        """Like `append`, for records that take time to make: they keep their place, other logs do not wait for them."""
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        item = _Append(log, epoch, None, done)
        self._enqueue(item)
        try:
            item.records = await prepare()
        except BaseException:
            done.cancel()
            raise
        finally:
            self._wake.set()
        return await done

    async def change(self, apply: Change[_T], *, log: str | None = None) -> _T:
        """Run `apply` in a transaction of its own, after the pending appends, and return its result once durable.

        With `log`, `apply` changes that log or its owner: its end is looked up anew afterwards.

        Raises:
            DatabaseError: the database failed; nothing was changed. Errors that `apply` raises pass unchanged,
                `sqlalchemy.exc.IntegrityError` among them.
        """
        done: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        self._enqueue(_Change(log, apply, done))
        return await done

    async def close(self) -> None:
        """Take no more, write what is pending within the time limit, and end; calling it again is fine."""
        self._closing = True
        self._wake.set()
        if self._task is None:
            return
        done, _ = await asyncio.wait([self._task], timeout=self._close_timeout_seconds)
        if not done:
            _log.error("the database did not take %d pending changes in time; giving up on them", len(self._queue))
            self._task.cancel()
            await asyncio.wait([self._task])
        self._task = None

    def _enqueue(self, item: _Append | _Change) -> None:
        if self._closing or self._task is None or self._task.done():
            raise DatabaseError("the database is closed; nothing was stored")
        if len(self._queue) >= MAX_PENDING:
            raise DatabaseError("the database cannot keep up with the changes; nothing was stored, try again later")
        self._queue.append(item)
        self._wake.set()

    async def _run(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while (batch := self._take()) is not None:
                    if isinstance(batch, _Change):
                        await self._apply(batch)
                    else:
                        await self._commit(batch)
                if self._closing and not self._queue:
                    return
        finally:
            for item in self._queue:
                _fail(item, DatabaseError("the database was closed before this could be stored"))
            self._queue.clear()
            if self._connection is not None:
                await self._connection.close()

    def _take(self) -> list[_Append] | _Change | None:
        """The next change, or as many appends as fit into one transaction; None when nothing is ready."""
        batch: list[_Append] = []
        epochs: dict[str, int] = {}
        unready: set[str] = set()
        left: deque[_Append | _Change] = deque()
        room, rows = MAX_BATCH_BYTES, self._engines.max_rows
        while self._queue:
            item = self._queue.popleft()
            if item.done.done():
                continue
            if item.log in unready or (isinstance(item, _Append) and item.records is None):
                unready.add(item.log or "")
                left.append(item)
                continue
            if isinstance(item, _Change):
                if not batch:
                    self._queue.extendleft(reversed(left))
                    return item
                left.append(item)
                break
            records = item.records or ()
            room -= sum(len(record.payload or b"") for record in records)
            rows -= len(records)
            if batch and (room < 0 or rows < 0 or epochs.get(item.log, item.epoch) != item.epoch):
                left.append(item)
                break
            epochs[item.log] = item.epoch
            batch.append(item)
        self._queue.extendleft(reversed(left))
        return batch or None

    async def _commit(self, batch: list[_Append]) -> None:
        try:
            await self._insert(batch, self._engines.insert_events)
        except asyncio.CancelledError:
            _fail_all(batch, DatabaseError("the database was closed before it confirmed this; it may not be stored"))
            raise
        except Exception as error:  # noqa: BLE001 - told to the callers; the writer must live on
            for item in batch:
                self._tails.pop(item.log, None)
            await self._recover()
            if is_outage(error):
                _log.warning("%d appends could not be stored: %s", len(batch), error)
                _fail_all(batch, database_error("the event could not be stored", error))
            else:
                # The end of a log was not where we thought (another process wrote), or a value is impossible: what is
                # wrong with one append must not fail the others.
                await self._commit_apart(batch)

    async def _commit_apart(self, batch: list[_Append]) -> None:
        for item in batch:
            self._tails.pop(item.log, None)
            try:
                await self._insert([item], event_rows.insert_events)
            except asyncio.CancelledError:
                _fail_all(batch, DatabaseError("the database was closed before this could be stored"))
                raise
            except Exception as error:  # noqa: BLE001 - told to the caller; the writer must live on
                _log.warning("an append to conversation %s could not be stored: %s", item.log, error)
                self._tails.pop(item.log, None)
                await self._recover()
                _fail(item, database_error("the event could not be stored", error))

    async def _insert(self, batch: list[_Append], insert_events: Any) -> None:
        connection = await self._connect()
        unknown = {item.log for item in batch if item.log not in self._tails}
        if unknown:
            self._tails.update(await event_rows.last_ids(connection, unknown))
            await connection.rollback()
        tails: dict[str, int] = {}
        firsts: list[int] = []
        rows: list[EventRow] = []
        for item in batch:
            last = tails.get(item.log)
            if last is None:
                last = self._tails[item.log]
            firsts.append(last + 1)
            for record in item.records or ():
                last += 1
                rows.append(EventRow(item.log, last, *record, item.epoch))
            tails[item.log] = last
        if len(rows) > self._engines.max_rows:
            insert_events = event_rows.insert_events
        fenced = await insert_events(connection, rows)
        for log, last in tails.items():
            if log in fenced:
                self._tails.pop(log, None)
            else:
                self._tails[log] = last
                self._tails.move_to_end(log)
        while len(self._tails) > MAX_CACHED_TAILS:
            self._tails.popitem(last=False)
        for item, first in zip(batch, firsts, strict=True):
            if item.log in fenced:
                _fail(item, StaleOwnerError(f"conversation {item.log} has a newer owner than epoch {item.epoch}"))
            elif not item.done.done():
                item.done.set_result(first)

    async def _apply(self, item: _Change) -> None:
        if item.log is not None:
            self._tails.pop(item.log, None)
        try:
            connection = await self._connect()
            async with connection.begin():
                result = await item.apply(connection)
        except asyncio.CancelledError:
            _fail(item, DatabaseError("the database was closed before it confirmed this; it may not be stored"))
            raise
        except Exception as error:  # noqa: BLE001 - told to the caller; the writer must live on
            await self._recover()
            known = isinstance(error, SQLAlchemyError) and not is_conflict(error)
            _fail(item, database_error("the change could not be stored", error) if known else error)
        else:
            if not item.done.done():
                item.done.set_result(result)

    async def _connect(self) -> AsyncConnection:
        if self._connection is None:
            self._connection = await self._engines.write.connect()
        return self._connection

    async def _recover(self) -> None:
        """Leave no half-done transaction behind; a connection that cannot even do that is thrown away."""
        if self._connection is None:
            return
        try:
            await self._connection.rollback()
        except SQLAlchemyError:
            _log.warning("the connection to the database is broken; making a new one", exc_info=True)
            broken, self._connection = self._connection, None
            await broken.invalidate()
            await broken.close()


def _fail(item: _Append | _Change, error: BaseException) -> None:
    if not item.done.done():
        item.done.set_exception(error)


def _fail_all(items: Sequence[_Append], error: EventStoreError) -> None:
    for item in items:
        _fail(item, error)
