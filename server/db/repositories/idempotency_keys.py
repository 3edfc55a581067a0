"""Idempotency keys: requests that are carried out once however often they come."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from sqlalchemy import Row, delete, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from server.clock import careful_now
from server.db.tables import idempotency_keys
from server.db.writer import Writer
from server.errors import KeyInUseError, KeyReusedError

RETENTION: Final = timedelta(days=7)
"""For how long a key is remembered."""

MAX_KEY_CHARS: Final = 255
WAIT_SECONDS: Final = 30.0
"""How long a repetition waits for the first request to end."""

StoredAnswer = dict[str, Any]


def sending_scope(conversation_id: str) -> str:
    """The scope of what is sent to a conversation; its keys go with the conversation."""
    return f"send:{conversation_id}"


class Attempt(NamedTuple):
    """What the first request with this key chose, and whether an earlier attempt may have done some of the work."""

    resource: str
    is_repeated: bool


class IdempotencyKeys:
    """Keeps the keys, durably. Of one key one request at a time is carried out, as far as this process knows."""

    def __init__(
        self, writer: Writer, *, wait_seconds: float = WAIT_SECONDS, now: Callable[[], datetime] = careful_now
    ) -> None:
        self._writer = writer
        self._wait_seconds = wait_seconds
        self._now = now
        self._in_progress: dict[tuple[str, str, str], _Turn] = {}

    async def once(
        self,
        key: str | None,
        work: Callable[[Attempt], Awaitable[StoredAnswer]],
        *,
        user_id: str,
        scope: str,
        request: object,
        resource: str,
        refusals: tuple[type[Exception], ...] = (),
    ) -> StoredAnswer:
        """The answer of `work` (JSON), or the one it gave when this key came first; without a key it just runs.

        After an attempt that failed, was cancelled or whose process died, the next one is told so, with the same
        `resource`. `request` is compared with the first one. After one of the `refusals` the key is free again.
        Raises `KeyReusedError` (it came with something else), `KeyInUseError` (the first request does not end) or
        `DatabaseError` (nothing was done).
        """
        if key is None:
            return await work(Attempt(resource, is_repeated=False))
        async with self._turn((user_id, scope, key)):
            row = _Row(user_id, scope, key, _digest(request))
            now = self._now()
            try:
                found = await self._writer.change(lambda connection: row.claim(connection, resource, now))
            except IntegrityError:  # another server was first, in this moment
                found = await self._writer.change(lambda connection: row.claim(connection, resource, now))
            if found is not None and found.digest != row.digest:
                raise KeyReusedError(
                    f"Idempotency-Key: {key!r} came with another request before; a new request needs a new key"
                )
            stored: StoredAnswer | None = found.answer if found else None
            if stored is not None:
                return stored
            try:
                answer = await work(Attempt(found.resource if found else resource, is_repeated=found is not None))
            except refusals:
                await self._writer.execute(delete(idempotency_keys).where(row.is_it))
                raise
            await self._writer.execute(update(idempotency_keys).where(row.is_it).values(answer=answer))
            return answer

    @asynccontextmanager
    async def _turn(self, name: tuple[str, str, str]) -> AsyncIterator[None]:
        turn = self._in_progress.setdefault(name, _Turn())
        turn.users += 1
        try:
            try:
                async with asyncio.timeout(self._wait_seconds):
                    await turn.lock.acquire()
            except TimeoutError:
                raise KeyInUseError(
                    f"Idempotency-Key: the first request with {name[2]!r} is still being carried out; try again later"
                ) from None
            try:
                yield
            finally:
                turn.lock.release()
        finally:
            turn.users -= 1
            if not turn.users:
                del self._in_progress[name]


class _Turn:
    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


class _Row(NamedTuple):
    """A key with what is asked under it; `claim` runs in the writer's transactions, where old keys go."""

    user_id: str
    scope: str
    key: str
    digest: str

    async def claim(self, connection: AsyncConnection, resource: str, now: datetime) -> Row[Any, Any, Any] | None:
        """What is stored under the key; None: it was new, and is kept now."""
        table = idempotency_keys.c
        await connection.execute(delete(idempotency_keys).where(table.created_at < now - RETENTION))
        found = (
            await connection.execute(select(table.digest, table.resource, table.answer).where(self.is_it))
        ).one_or_none()
        if found is None:
            row = {**self._asdict(), "resource": resource, "answer": None, "created_at": now}
            await connection.execute(insert(idempotency_keys), row)
        return found

    @property
    def is_it(self) -> Any:
        table = idempotency_keys.c
        return (table.user_id == self.user_id) & (table.scope == self.scope) & (table.key == self.key)


def _digest(request: object) -> str:
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
