"""`SqlEventStore`: the event log in a database, over the group-commit writer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from agent_core.errors import EventStoreError
from agent_core.events.store import NewEvent, StoredEvent
from agent_core.troubles import Trouble, coded
from server.db import event_rows
from server.db.blobs import BlobStore, PayloadLostError, drop_blobs
from server.db.engine import Engines
from server.db.tables import to_microseconds
from server.db.writer import Record, Writer

MAX_PAGE_BYTES = 4 * 1024 * 1024
"""Payloads of one page together, unless a single one is larger: what one reader may cost in memory."""

LARGE_SECONDS = 30.0
"""How long the reader of a large payload waits for its turn, and for memory."""
_LOOK_SECONDS = 0.1

_log = logging.getLogger(__name__)

_MAX_INTEGER = 2**63 - 1

# A page is at most :limit events and ends before the one that would take it over :budget; it has one event at least.
_SELECT_AFTER = """
    SELECT id, blob, payload FROM events WHERE conversation_id = :log AND id > :position AND id <= (
        SELECT coalesce(max(CASE WHEN total <= :budget THEN id END), min(id)) FROM (
            SELECT id, sum(size) OVER (ORDER BY id) AS total FROM events
            WHERE conversation_id = :log AND id > :position ORDER BY id LIMIT :limit
        ) AS page
    ) ORDER BY id
"""
_SELECT_BEFORE = """
    SELECT id, blob, payload FROM events WHERE conversation_id = :log AND id < :position AND id >= (
        SELECT coalesce(min(CASE WHEN total <= :budget THEN id END), max(id)) FROM (
            SELECT id, sum(size) OVER (ORDER BY id DESC) AS total FROM events
            WHERE conversation_id = :log AND id < :position ORDER BY id DESC LIMIT :limit
        ) AS page
    ) ORDER BY id DESC
"""
_SELECT_BLOBS = "SELECT DISTINCT conversation_id, blob FROM events WHERE blob IS NOT NULL"
_SELECT_KINDS = "SELECT DISTINCT kind, source FROM events WHERE conversation_id = :log AND id > :position"
_SELECT_LAST = "SELECT max(id) FROM events WHERE conversation_id = :log"


async def log_sizes(engines: Engines) -> dict[str, int]:
    """Bytes of all payloads of each log, large ones too; takes a look at every event."""
    rows = await engines.fetch("SELECT conversation_id, sum(size) FROM events GROUP BY conversation_id")
    return {log: int(size) for log, size in rows}


def _plain(payload: object) -> bytes:
    """The payload of a row, whatever somebody else has put there: what is no event is passed over later."""
    return payload if isinstance(payload, bytes) else str(payload or "").encode("utf-8", "surrogatepass")


class SqlEventStore:
    """An `EventStore` in a SQL database; payloads over a limit go to the blob store, which no caller notices."""

    def __init__(self, engines: Engines, writer: Writer, blobs: BlobStore, *, inline_payload_bytes: int) -> None:
        self._engines = engines
        self._writer = writer
        self._blobs = blobs
        self._inline_payload_bytes = inline_payload_bytes
        self._watcher: Callable[[str], None] | None = None
        self._shortage: Callable[[], EventStoreError | None] = lambda: None
        self._reading_large = asyncio.Lock()

    def hold_back(self, shortage: Callable[[], EventStoreError | None]) -> None:
        """Have large payloads wait while `shortage` has an error to raise, for at most `LARGE_SECONDS` in all."""
        self._shortage = shortage

    def watch(self, watcher: Callable[[str], None] | None) -> None:
        """Have `watcher`, the only one, told the id of each log in which something was stored; it must not block."""
        self._watcher = watcher

    async def append(self, conversation_id: str, events: Sequence[NewEvent], *, epoch: int = 0) -> int:
        first = await self._append(conversation_id, events, epoch=epoch)
        if self._watcher is not None:
            self._watcher(conversation_id)
        return first

    async def _append(self, conversation_id: str, events: Sequence[NewEvent], *, epoch: int) -> int:
        limit = self._inline_payload_bytes
        records: list[Record] = []
        for kind, source, cause, timestamp, payload in events:
            if len(payload) > limit:
                return await self._writer.append_prepared(
                    conversation_id, lambda: self._with_blobs(conversation_id, events), epoch=epoch
                )
            records.append(Record(kind, source, cause, to_microseconds(timestamp), len(payload), None, payload))
        return await self._writer.append(conversation_id, records, epoch=epoch)

    async def _with_blobs(self, conversation_id: str, events: Sequence[NewEvent]) -> list[Record]:
        records = []
        if problem := self._writer.health.problem:  # a full disk is not to be filled with what no event will name
            raise EventStoreError(f"The event could not be stored: {problem}", code=self._writer.health.code)
        for event in events:
            payload: bytes | None = event.payload
            blob = None
            if len(event.payload) > self._inline_payload_bytes:
                payload, blob = None, await self._blobs.put(conversation_id, event.payload)
            timestamp = to_microseconds(event.timestamp)
            records.append(Record(event.kind, event.source, event.cause, timestamp, len(event.payload), blob, payload))
        return records

    async def read(self, conversation_id: str, *, after: int = -1, limit: int = 100) -> list[StoredEvent]:
        return await self._read(_SELECT_AFTER, conversation_id, after, limit)

    async def read_before(self, conversation_id: str, *, before: int, limit: int = 100) -> list[StoredEvent]:
        return await self._read(_SELECT_BEFORE, conversation_id, before, limit)

    async def _read(self, statement: str, conversation_id: str, position: int, limit: int) -> list[StoredEvent]:
        rows = await self._engines.fetch(
            statement,
            log=conversation_id,
            position=max(-_MAX_INTEGER, min(position, _MAX_INTEGER)),
            limit=max(0, min(limit, _MAX_INTEGER)),
            budget=MAX_PAGE_BYTES,
        )
        return [
            StoredEvent(
                event_id, _plain(payload) if blob is None else await self._large(conversation_id, event_id, blob)
            )
            for event_id, blob, payload in rows
        ]

    async def _large(self, conversation_id: str, event_id: int, digest: str) -> bytes:
        """Read one at a time: what its reader makes of it counts for the next one, and that is several times its size.

        Who reads goes on at once when it is there; the next one has to come by the blob store's thread first. In the
        place of one that is lost stands an empty one, which nobody can read.
        """
        last = asyncio.get_running_loop().time() + LARGE_SECONDS
        async with self._reading_large:
            while (shortage := self._shortage()) is not None:
                if asyncio.get_running_loop().time() > last:
                    raise shortage
                await asyncio.sleep(_LOOK_SECONDS)
            try:
                return await self._blobs.get(conversation_id, digest)
            except PayloadLostError as error:
                text, extra = (
                    "event %d of conversation %s is lost: %s",
                    coded(Trouble.EVENT_UNREADABLE, conversation_id),
                )
                _log.error(text, event_id, conversation_id, error, extra=extra)
                return b""

    async def blobs_in_use(self) -> dict[str, set[str]]:
        """The digests of all large payloads that events refer to, by conversation id."""
        used: dict[str, set[str]] = {}
        for log, digest in await self._engines.fetch(_SELECT_BLOBS):
            used.setdefault(log, set()).add(digest)
        return used

    async def last_id(self, conversation_id: str) -> int:
        last = (await self._engines.fetch(_SELECT_LAST, log=conversation_id))[0][0]
        return -1 if last is None else int(last)

    async def last_ids(self, conversation_id: str) -> dict[str, int]:
        """The id of the last event of the log and of each one below it, where there is one."""
        below = await self._engines.select(event_rows.select_below(conversation_id))
        logs = [conversation_id, *(row.conversation_id for row in below)]
        newest = await self._engines.select(event_rows.select_last_ids(logs))
        return {row.conversation_id: row.newest for row in newest}

    async def kinds_after(self, log: str, after: int) -> set[tuple[str, str]]:
        """The kind and the source of each of the log's events with id > `after`."""
        rows = await self._engines.fetch(_SELECT_KINDS, log=log, position=after)
        return {(kind, source) for kind, source in rows}

    async def claim(self, conversation_id: str) -> int:
        return await self._writer.change(
            lambda connection: event_rows.raise_epoch(connection, conversation_id), log=conversation_id
        )

    async def delete(self, conversation_id: str) -> None:
        logs = await self._writer.change(
            lambda connection: event_rows.delete_log(connection, conversation_id), log=conversation_id
        )
        for log in logs:
            await drop_blobs(self._blobs, log)
