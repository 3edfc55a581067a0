"""`Writer`: the one writer of a process, which commits the appends of all conversations together (group commit)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, repeat
from typing import Any, Final, NamedTuple, Self, TypeVar

from sqlalchemy import Executable, text
from sqlalchemy.ext.asyncio import AsyncConnection

from agent_core.errors import STORAGE_UNAVAILABLE, StaleOwnerError
from agent_core.troubles import Trouble, coded
from server.auth.secrets import SecretBox
from server.db import event_rows
from server.db.engine import Engines, InsertEvents
from server.db.errors import (
    DatabaseError,
    database_error,
    explain,
    is_conflict,
    is_damage,
    is_database_failure,
    is_locked,
    is_lost,
    is_outage,
    outage_code,
)
from server.db.event_rows import EventRow
from server.db.storage_health import StorageHealth
from server.metrics import ServerMetrics

MAX_PENDING = 50_000
MAX_BATCH_BYTES = 8 * 1024 * 1024
MAX_CACHED_TAILS = 4096

SLOW_SECONDS = 10.0
"""A database that has not stored something by then counts as one that stores nothing, until it has."""
RECONNECT_SECONDS = 2.0
"""So long a connection to a database server that is being started anew is tried, before anybody is refused."""
SETTLE_SECONDS = 30.0
"""So long what was on its way when the connection was lost waits for being found out to be stored, or not."""
_PAUSES = (0.02, 0.1, 0.25)

_UNCONFIRMED = "the database was closed before it confirmed this change, which may not be stored"
_UNKNOWN = "It is not known whether this was stored"
_log = logging.getLogger(__name__)
_T = TypeVar("_T")
DatabaseChange = Callable[[AsyncConnection], Awaitable[_T]]


BESIDE: Final[ContextVar[Callable[[DatabaseChange[Any]], DatabaseChange[Any]] | None]] = ContextVar(
    "beside", default=None
)
"""Makes of the changes that are asked for in this context ones that store something beside, in the same transaction."""


class Record(NamedTuple):
    """An event without its place in the log: `size` bytes of payload, inline or in the blob store under `blob`."""

    kind: str
    source: str
    cause: int | None
    timestamp: int
    size: int
    blob: str | None
    payload: bytes | None


class Writer:
    """Commits appends and all other changes in the order of the calls, so that none compete for a lock.

    Callers wait until their change is durable; `MAX_PENDING` bounds their number. A failed transaction fails exactly
    the calls in it, gives their ids to the next ones, and the writer goes on.
    """

    def __init__(self, engines: Engines, *, close_timeout_seconds: float) -> None:
        self.health = StorageHealth()
        self.fence: DatabaseChange[None] | None = None
        """Asked in each transaction; where it raises `StaleOwnerError`, that is what all who wait for it are told."""
        self.metrics: ServerMetrics | None = None
        self._engines = engines
        engines.read_failed = self._read_failed
        self._close_timeout_seconds = close_timeout_seconds
        self._pending = PendingQueue(max_rows=engines.max_rows)
        self._tails: OrderedDict[str, int] = OrderedDict()
        self._wake = asyncio.Event()
        self._closing = False
        self._is_in_doubt = False
        self._probed_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self._connection: AsyncConnection | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="database-writer")
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()

    @property
    def pending(self) -> int:
        """How many changes wait to be stored."""
        return len(self._pending.items)

    async def append(self, log: str, records: Sequence[Record], *, epoch: int) -> int:
        """Store `records` durably at the end of `log`; returns the id of the first.

        Raises `StaleOwnerError` (a later epoch owns the log) or `EventStoreError`.
        """
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._enqueue(PendingAppend(log, epoch, records, done))
        return await done

    async def append_prepared(self, log: str, prepare: Callable[[], Awaitable[Sequence[Record]]], *, epoch: int) -> int:
        """Like `append`, for records that take time to make: they keep their place, other logs do not wait for them."""
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        item = PendingAppend(log, epoch, None, done)
        self._enqueue(item)
        try:
            item.records = await prepare()
        except BaseException:
            if not done.cancel() and not done.cancelled():
                done.exception()  # closing was faster; the caller hears of its own error
            raise
        finally:
            self._wake.set()
        return await done

    async def change(self, apply: DatabaseChange[_T], *, log: str | None = None, fenced: bool = True) -> _T:
        """Run `apply` in a transaction of its own, after the pending appends; returns its result once durable.

        With `log`, `apply` changes that log or its owner: its end is looked up anew. Without `fenced` the fence is not
        asked. `DatabaseError`: nothing was changed. What `apply` raises passes unchanged,
        `sqlalchemy.exc.IntegrityError` among it.
        """
        done: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        if (beside := BESIDE.get()) is not None:
            apply = beside(apply)
        self._enqueue(PendingChange(log, apply, done, fenced))
        return await done

    async def execute(self, statement: Executable, row: Mapping[str, Any] | None = None) -> int:
        """Run one statement (with the parameters `row`) as a `change`; returns how many rows it concerned."""

        async def apply(connection: AsyncConnection) -> int:
            return (await connection.execute(statement, row)).rowcount

        return await self.change(apply)

    async def close(self) -> None:
        """Take no more, write what is pending within the time limit, and end; calling it again is fine."""
        self._closing = True
        self._wake.set()
        if self._task is None:
            return
        task, self._task = self._task, None
        done, _ = await asyncio.wait([task], timeout=self._close_timeout_seconds)
        if not done:
            _log.error("the database did not take %d pending changes in time; giving them up", len(self._pending.items))
            task.cancel()
            await asyncio.wait([task])

    def _enqueue(self, item: PendingAppend | PendingChange) -> None:
        if self._closing or self._task is None:
            raise DatabaseError("the database is closed; nothing was stored")
        if len(self._pending.items) >= MAX_PENDING:
            raise DatabaseError("the database cannot keep up with the changes; nothing was stored, try again later")
        self._pending.items.append(item)
        self._wake.set()

    async def _run(self) -> None:
        try:
            while self._pending.items or not self._closing:
                await self._until_woken()
                while (work := self._pending.take()) is not None:
                    slow = asyncio.get_running_loop().call_later(SLOW_SECONDS, self._is_slow)
                    try:
                        await (self._apply(work) if isinstance(work, PendingChange) else self._commit(work))
                    except asyncio.CancelledError:
                        for item in [work] if isinstance(work, PendingChange) else work:
                            _fail(item, DatabaseError(_UNCONFIRMED))
                        raise
                    finally:
                        slow.cancel()
                    # Those who were just answered often append again at once: let them into the next batch.
                    await asyncio.sleep(0)
        finally:
            for item in self._pending.items:
                _fail(item, DatabaseError("the database was closed before this change could be stored"))
            if self._connection is not None:
                await self._connection.close()

    async def _until_woken(self) -> None:
        """Wait for something to do; while nothing can be stored, try again and again whether it can."""
        now, every = asyncio.get_running_loop().time, self.health.PROBE_SECONDS
        with suppress(TimeoutError):
            async with asyncio.timeout(every if self.health.problem else None):
                await self._wake.wait()
        self._wake.clear()
        # Also where there is always something to do: that a change could be made does not say that events can be.
        is_due = bool(self.health.problem) and now() >= self._probed_at + every
        if is_due or self._is_in_doubt:
            self._is_in_doubt = False
            await self._probe()

    async def _probe(self) -> None:
        self._probed_at = asyncio.get_running_loop().time()
        try:
            connection = await self._connect()
            async with connection.begin():
                await _touch(connection)
        except Exception as error:  # noqa: BLE001 - told to those who ask for something; the writer must live on
            await self._recover((), error)
            self._note(error)
            if is_damage(error):  # nothing can be written without that page
                self.health.failed(STORAGE_UNAVAILABLE, explain(error))
                await self._disconnect()  # SQLite keeps what it has read
        else:
            self.health.worked()

    def _is_slow(self) -> None:
        self.health.failed(STORAGE_UNAVAILABLE, f"the database has stored nothing for {SLOW_SECONDS:g} s")

    async def _commit(self, batch: list[PendingAppend]) -> None:
        try:
            await self._insert(batch, self._engines.insert_events)
        except Exception as error:  # noqa: BLE001 - told to the callers; the writer must live on
            await self._recover(batch, error)
            if isinstance(error, StaleOwnerError):  # the fence's
                for item in batch:
                    _fail(item, error)
            elif is_lost(error) and (_is_in_doubt(batch) or not self.health.problem):
                await self._settle(batch)
            elif is_outage(error):
                self._refuse(batch, error)
            else:
                # The end of a log was not where we thought (another process wrote), or a value is impossible: what is
                # wrong with one append must not fail the others.
                await self._commit_apart(batch)

    async def _settle(self, batch: list[PendingAppend]) -> None:
        """Store this batch over another connection, unless it was stored before the one that it went over was lost.

        Where that is not known it waits for longer; whoever waits behind it is refused: nothing of theirs was sent.
        """
        loop = asyncio.get_running_loop()
        last = loop.time() + SETTLE_SECONDS
        while True:
            try:
                await self._insert(batch, self._engines.insert_events)
            except Exception as error:  # noqa: BLE001 - told to the callers; the writer must live on
                await self._recover(batch, error)
                if not is_outage(error):
                    await self._commit_apart(batch)
                    return
                if not _is_in_doubt(batch):
                    self._refuse(batch, error)
                    return
                self._note(error)
                self._refuse_pending(error)
                if self._closing or loop.time() > last:
                    for item in batch:
                        _fail(item, database_error(_UNKNOWN, error))
                    return
                await asyncio.sleep(self.health.PROBE_SECONDS)
            else:
                return

    async def _commit_apart(self, batch: list[PendingAppend]) -> None:
        for item in batch:
            try:
                await self._insert([item], event_rows.insert_events)
            except Exception as error:  # noqa: BLE001 - told to the caller; the writer must live on
                await self._recover([item], error)
                if item.first is not None and is_lost(error):
                    await self._settle([item])
                    continue
                self._note(error)
                text, extra = "an append to conversation %s could not be stored: %s", coded(Trouble.OTHER, item.log)
                _log.warning(text, item.log, explain(error), extra=extra)
                _fail(item, database_error("The event could not be stored", error))

    async def _insert(self, batch: list[PendingAppend], insert_events: InsertEvents) -> None:
        connection = await self._connect()
        tails = await self._ends(connection, batch)
        stale = await self._stale(connection, batch)
        firsts: list[int] = []
        rows: list[EventRow] = []
        for item in batch:
            log, epoch, last, records = item.log, item.epoch, tails[item.log], item.records or ()
            if item.first is not None and last >= item.first + len(records) - 1 and log not in stale:
                firsts.append(item.first)  # it was stored when the connection was lost
                continue
            firsts.append(last + 1)
            for record in records:
                last += 1
                rows.append((log, last, *record, epoch))
            tails[log] = last
        if len(rows) > self._engines.max_rows or insert_events is event_rows.insert_events:
            insert_events = partial(event_rows.insert_events, fence=self.fence)
        began = time.perf_counter()
        try:
            fenced = await insert_events(connection, rows) if rows else set()
        except Exception as error:
            if is_lost(error):
                for item, first in zip(batch, firsts, strict=True):
                    item.first = first
            raise
        if rows:
            self.health.worked()
            self._measure(batch, fenced, time.perf_counter() - began)
        self._remember(tails, fenced)
        for item, first in zip(batch, firsts, strict=True):
            if item.log in fenced:
                _fail(item, StaleOwnerError(f"conversation {item.log} has a newer owner than epoch {item.epoch}"))
            elif not item.done.done():
                item.done.set_result(first)

    async def _stale(self, connection: AsyncConnection, batch: list[PendingAppend]) -> set[str]:
        """Those logs with an append of which it is not known whether it was stored that a later owner may have gone on.

        To be asked when their ends are known: whoever has the same owner now had it then.
        """
        unsure = {item.log: item.epoch for item in batch if item.first is not None}
        if not unsure:
            return set()
        async with connection.begin():
            found = await event_rows.owner_epochs(connection, unsure)
        return {log for log, epoch in unsure.items() if found.get(log, epoch) > epoch}

    def _measure(self, batch: list[PendingAppend], fenced: set[str], seconds: float) -> None:
        if (metrics := self.metrics) is None:
            return
        now, kinds = time.perf_counter(), Counter[str]()
        metrics.observe("drydock_commit_duration_seconds", seconds)
        for item in batch:
            if item.log not in fenced:
                metrics.observe("drydock_append_duration_seconds", now - item.since)
                kinds.update(record.kind for record in item.records or ())
        for kind, times in kinds.items():
            metrics.add("drydock_events_total", times, kind)

    async def _ends(self, connection: AsyncConnection, batch: list[PendingAppend]) -> dict[str, int]:
        ends: dict[str, int] = {}
        unknown: set[str] = set()
        for item in batch:
            last = self._tails.get(item.log)
            if last is None:
                unknown.add(item.log)
            else:
                ends[item.log] = last
        if unknown:
            async with connection.begin():
                ends |= await event_rows.last_ids(connection, unknown)
        return ends

    def _remember(self, tails: dict[str, int], fenced: set[str]) -> None:
        for log, last in tails.items():
            if log in fenced:
                self._tails.pop(log, None)
            else:
                self._tails[log] = last
                self._tails.move_to_end(log)
        while len(self._tails) > MAX_CACHED_TAILS:
            self._tails.popitem(last=False)

    async def _apply(self, item: PendingChange) -> None:
        if item.log is not None:
            self._tails.pop(item.log, None)
        for is_last in (False, True):
            is_whole = False
            try:
                connection = await self._connect()
                async with connection.begin():
                    if item.fenced and self.fence is not None:
                        await self.fence(connection)
                    result = await item.apply(connection)
                    is_whole = True
            except Exception as error:  # noqa: BLE001 - told to the caller; the writer must live on
                await self._recover((), error)
                if is_lost(error) and not (is_whole or is_last or self.health.problem):
                    continue  # the server has taken it back
                known = is_database_failure(error) and not is_conflict(error)
                self._note(error)
                what = _UNKNOWN if is_whole and is_lost(error) else "The change could not be stored"
                _fail(item, database_error(what, error) if known else error)
                return
            else:
                if not item.done.done():
                    item.done.set_result(result)
                return

    def _note(self, error: Exception) -> None:
        if is_database_failure(error) and (code := outage_code(error)):
            self.health.failed(code, explain(error))
            if is_locked(error):  # each of those who wait would wait for the lock as long as this one did
                self._refuse_pending(error)

    def _refuse(self, batch: Sequence[PendingAppend], error: Exception) -> None:
        self._note(error)
        for item in batch:
            _fail(item, database_error("The event could not be stored", error))

    def _refuse_pending(self, error: Exception) -> None:
        for item in self._pending.items:
            _fail(item, database_error("The change could not be stored", error))

    def _read_failed(self, error: Exception) -> None:
        if is_damage(error):
            self.health.unreadable(f"A part of the database cannot be read: {explain(error)}")
            self._is_in_doubt = True  # one page, or the whole disk?
        self._note(error)
        self._wake.set()  # from now on it is tried whether something can be stored

    async def _connect(self) -> AsyncConnection:
        self._engines.check()
        if self._connection is not None and self._engines.is_closed(self._connection):
            await self._disconnect()
        if self._connection is None:
            self._connection = await self._connected()
        return self._connection

    async def _connected(self) -> AsyncConnection:
        """A new connection; a database server that does not answer yet is asked again for a moment, unless known."""
        last = asyncio.get_running_loop().time() + RECONNECT_SECONDS
        for pause in chain(_PAUSES, repeat(_PAUSES[-1])):
            try:
                return await self._engines.write.connect()
            except Exception as error:
                if not is_lost(error):
                    raise
                if self.health.problem or asyncio.get_running_loop().time() + pause > last:
                    self._note(error)  # known from now on: nobody else waits for it
                    raise
            await asyncio.sleep(pause)
        raise AssertionError("unreachable")

    async def _recover(self, batch: Sequence[PendingAppend], error: Exception) -> None:
        """After a failure: look the ends of these logs up anew, and leave no half-done transaction behind."""
        for item in batch:
            self._tails.pop(item.log, None)
        if is_lost(error):
            await self._disconnect()
        if self._connection is None:
            return
        try:
            await self._connection.rollback()
        except Exception as broken:  # noqa: BLE001 - whatever it was, that connection is given up
            _log.warning("the connection to the database is broken; making a new one: %s", explain(broken))
            await self._disconnect()

    async def _disconnect(self) -> None:
        broken, self._connection = self._connection, None
        if broken is not None:
            with suppress(Exception):  # it is given up, however it ends
                await broken.invalidate()
                await broken.close()


@dataclass(slots=True, eq=False)
class PendingAppend:
    """Records for the end of `log`; None while they are being prepared: they keep their place in the order."""

    log: str
    epoch: int
    records: Sequence[Record] | None
    done: asyncio.Future[int]
    first: int | None = None
    """The id that it was given when the connection was lost, so that it may be stored."""
    since: float = field(default_factory=time.perf_counter)


@dataclass(slots=True, eq=False)
class PendingChange:
    """A change with a transaction of its own; with `log` it keeps its place among the appends to that log."""

    log: str | None
    apply: DatabaseChange[Any]
    done: asyncio.Future[Any]
    fenced: bool


def _is_in_doubt(batch: Sequence[PendingAppend]) -> bool:
    return any(item.first is not None for item in batch)


async def _touch(connection: AsyncConnection) -> None:
    await connection.execute(text("UPDATE alembic_version SET version_num = version_num"))


def _fail(item: PendingAppend | PendingChange, error: BaseException) -> None:
    if not item.done.done():
        item.done.set_exception(error)


class PendingQueue:
    """Pending appends and changes, in the order of the calls; logs that prepare their next append are passed over."""

    def __init__(self, *, max_rows: int) -> None:
        self._max_rows = max_rows
        self.items: deque[PendingAppend | PendingChange] = deque()

    def take(self) -> list[PendingAppend] | PendingChange | None:
        """The next change, or the appends that fit into one transaction; None when nothing is ready.

        All appends of one log in a batch have the same epoch; what nobody waits for any more is dropped.
        """
        batch: list[PendingAppend] = []
        epochs: dict[str, int] = {}
        blocked: set[str] = set()
        left: list[PendingAppend | PendingChange] = []
        change: PendingChange | None = None
        room, rows = MAX_BATCH_BYTES, self._max_rows
        items = self.items
        while items:
            item = items.popleft()
            if item.done.done():
                continue
            if item.log in blocked:
                left.append(item)
                continue
            if isinstance(item, PendingChange):
                if batch:
                    left.append(item)
                else:
                    change = item
                break
            if item.records is None:
                blocked.add(item.log)
                left.append(item)
                continue
            for record in item.records:
                if record.payload is not None:
                    room -= record.size
            rows -= len(item.records)
            if batch and (room < 0 or rows < 0 or epochs.get(item.log, item.epoch) != item.epoch):
                left.append(item)
                break
            epochs[item.log] = item.epoch
            batch.append(item)
        items.extendleft(reversed(left))
        return change or batch or None


class TableRepository:
    """Base of repositories. Every method raises `DatabaseError` when the database cannot be read or written."""

    def __init__(self, engines: Engines, writer: Writer) -> None:
        self._engines = engines
        self._writer = writer


class SealedRepository(TableRepository):
    """A repository that encrypts some of what it keeps."""

    def __init__(self, engines: Engines, writer: Writer, box: SecretBox) -> None:
        super().__init__(engines, writer)
        self._box = box
