"""Changes of conversations that may wait a moment: joined, then written together."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from sqlalchemy import bindparam, update
from sqlalchemy.ext.asyncio import AsyncConnection

from agent_core.errors import EventStoreError
from server.db.tables import conversations
from server.db.writer import Writer

Changes = dict[str, Any]

_KEY = "touched_id"

_log = logging.getLogger(__name__)


class Touches:
    """Pending changes by conversation, written at most once per interval; an async context manager.

    A failed write is tried again at the next interval. Leaving it writes the rest.

    Attributes:
        writes: how many times something was written; a reader to whom it changes may have missed both the change in
            the database and the pending one.
    """

    def __init__(self, writer: Writer, *, interval_seconds: float) -> None:
        self._writer = writer
        self._interval_seconds = interval_seconds
        self._pending: dict[str, Changes] = {}
        self._in_flight: dict[str, Changes] = {}
        self.writes = 0
        self._flushing = asyncio.Lock()  # one write at a time: an older value must not overtake a newer one
        self._touched = asyncio.Event()
        self._has_trouble = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="conversation-touches")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        await self._try_flush()

    def add(self, conversation_id: str, changes: Changes) -> None:
        """Write these values at the next interval."""
        if changes:
            self._pending.setdefault(conversation_id, {}).update(changes)
            self._touched.set()

    def pending(self, conversation_id: str) -> Changes:
        """What is not known to be written yet."""
        if not self._pending and not self._in_flight:
            return {}
        return {**self._in_flight.get(conversation_id, {}), **self._pending.get(conversation_id, {})}

    def supersede(self, conversation_id: str, changes: Mapping[str, Any]) -> None:
        """Newer values of these facts are being written in another way: drop the older ones."""
        for waiting in (self._pending.get(conversation_id), self._in_flight.get(conversation_id)):
            if waiting is not None:
                for name in changes:
                    waiting.pop(name, None)

    def forget(self, conversation_id: str) -> None:
        """The conversation goes: drop what waits for it."""
        self._pending.pop(conversation_id, None)
        self._in_flight.pop(conversation_id, None)

    async def flush(self) -> None:
        """Write everything that is pending, durably.

        Raises:
            DatabaseError: it could not be written; it stays pending.
        """
        async with self._flushing:
            if not self._pending:
                return
            self._in_flight, self._pending = self._pending, {}
            groups = _grouped(self._in_flight)
            try:
                await self._writer.change(lambda connection: _write(connection, groups))
                self.writes += 1
            except BaseException:
                for conversation_id, changes in self._in_flight.items():
                    self._pending[conversation_id] = {**changes, **self._pending.get(conversation_id, {})}
                raise
            finally:
                self._in_flight = {}

    async def _run(self) -> None:
        while True:
            await self._touched.wait()
            await asyncio.sleep(self._interval_seconds)
            self._touched.clear()
            await self._try_flush()

    async def _try_flush(self) -> None:
        try:
            await self.flush()
            self._has_trouble = False
        except EventStoreError as error:
            if not self._has_trouble:  # a full disk may stay full for hours: told once, not once per interval
                _log.warning("counters of %d conversations could not be written yet: %s", len(self._pending), error)
            self._has_trouble = True
            self._touched.set()


def _grouped(pending: Mapping[str, Changes]) -> dict[tuple[str, ...], list[Changes]]:
    """The changes by the names of their columns, so that each group is one statement."""
    groups: defaultdict[tuple[str, ...], list[Changes]] = defaultdict(list)
    for conversation_id, changes in pending.items():
        if changes:
            groups[tuple(sorted(changes))].append({**changes, _KEY: conversation_id})
    return groups


async def _write(connection: AsyncConnection, groups: Mapping[tuple[str, ...], list[Changes]]) -> None:
    for names, rows in groups.items():
        statement = (
            update(conversations)
            .where(conversations.c.id == bindparam(_KEY))
            .values({name: bindparam(name) for name in names})
        )
        await connection.execute(statement, rows)
