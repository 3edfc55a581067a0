"""What waits for the writer, and which of it goes together into one transaction."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection

MAX_BATCH_BYTES = 8 * 1024 * 1024

_T = TypeVar("_T")

Change = Callable[[AsyncConnection], Awaitable[_T]]


class Record(NamedTuple):
    """An event without its place in the log: the payload is inline, or in the blob store under the digest `blob`.

    `size` is that of the payload in bytes, wherever it is.
    """

    kind: str
    source: str
    cause: int | None
    timestamp: int
    size: int
    blob: str | None
    payload: bytes | None


@dataclass(slots=True, eq=False)
class PendingAppend:
    """Records for the end of `log`; None while they are being prepared: they keep their place in the order."""

    log: str
    epoch: int
    records: Sequence[Record] | None
    done: asyncio.Future[int]

    def fail(self, error: BaseException) -> None:
        """Tell the caller, if it still waits."""
        if not self.done.done():
            self.done.set_exception(error)


@dataclass(slots=True, eq=False)
class PendingChange:
    """A change with a transaction of its own; with `log` it keeps its place among the appends to that log."""

    log: str | None
    apply: Change[Any]
    done: asyncio.Future[Any]

    def fail(self, error: BaseException) -> None:
        """Tell the caller, if it still waits."""
        if not self.done.done():
            self.done.set_exception(error)


class PendingQueue:
    """In the order of the calls, except that a log whose next append is still being prepared is passed over."""

    def __init__(self, *, max_rows: int) -> None:
        self._max_rows = max_rows
        self._items: deque[PendingAppend | PendingChange] = deque()

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: PendingAppend | PendingChange) -> None:
        """Put `item` at the end."""
        self._items.append(item)

    def take(self) -> list[PendingAppend] | PendingChange | None:
        """The next change, or as many appends as fit into one transaction; None when nothing is ready.

        All appends of one log in a batch have the same epoch. What nobody waits for any more is dropped.
        """
        batch: list[PendingAppend] = []
        epochs: dict[str, int] = {}
        held: set[str] = set()
        left: list[PendingAppend | PendingChange] = []
        change: PendingChange | None = None
        room, rows = MAX_BATCH_BYTES, self._max_rows
        items = self._items
        while items:
            item = items.popleft()
            if item.done.done():
                continue
            if item.log in held:
                left.append(item)
                continue
            if isinstance(item, PendingChange):
                if batch:
                    left.append(item)
                else:
                    change = item
                break
            if item.records is None:
                held.add(item.log)
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

    def drain(self) -> list[PendingAppend | PendingChange]:
        """Everything that is left; the queue is empty afterwards."""
        items = list(self._items)
        self._items.clear()
        return items
