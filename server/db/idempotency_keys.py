"""Idempotency keys: requests that are carried out once however often they come, through whichever door.

Whoever takes such a key calls `IdempotencyKeys.once` with a scope of its own: ``create`` for new conversations,
``fork:<conversation id>`` for forks, ``send:<conversation id>`` for messages.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from agent_core.events.event import utc_now
from server.db.tables import idempotency_keys
from server.db.writer import Writer
from server.errors import KeyInUseError, KeyReusedError

KEPT: Final = timedelta(days=7)
"""For how long a key is remembered."""

MAX_KEY_CHARS: Final = 255
WAIT_SECONDS: Final = 30.0
"""How long a repetition waits for the first request to end."""

Answer = dict[str, Any]


def sending_scope(conversation_id: str) -> str:
    """The scope of what is sent to a conversation; its keys go with the conversation."""
    return f"send:{conversation_id}"


class Attempt(NamedTuple):
    """What the work is told.

    Attributes:
        resource: what the first request with this key chose, such as the id of the conversation that it makes.
        is_repeated: an earlier attempt failed, or its process died: some of the work may be done.
    """

    resource: str
    is_repeated: bool


class IdempotencyKeys:
    """Keeps the keys, durably. Of one key one request at a time is carried out, as far as this process knows."""

    def __init__(
        self, writer: Writer, *, wait_seconds: float = WAIT_SECONDS, now: Callable[[], datetime] = utc_now
    ) -> None:
        self._writer = writer
        self._wait_seconds = wait_seconds
        self._now = now
        self._in_progress: dict[tuple[str, str, str], _Turn] = {}

    async def once(
        self,
        key: str | None,
        work: Callable[[Attempt], Awaitable[Answer]],
        *,
        user_id: str,
        scope: str,
        asked: object,
        resource: str,
        refusals: tuple[type[Exception], ...] = (),
    ) -> Answer:
        """The answer of `work`, or the one it gave when this key came first; without a key it is simply carried out.

        After an attempt that failed or was cancelled, or whose process died, the next one is told so, and goes on with
        the same `resource`.

        Args:
            key: what the client chose, unique for its user and `scope`; remembered for `KEPT`.
            work: carries the request out; its answer is JSON.
            user_id: whose key it is.
            scope: what kind of request it is; the same key may stand in several.
            asked: what the client wants, as JSON; compared with what it wanted the first time.
            resource: what an attempt after a crash has to know of this one.
            refusals: errors of `work` after which nothing is done. They give the key free for a better request.

        Raises:
            KeyReusedError: the key came with something else before.
            KeyInUseError: the first request with it does not end.
            DatabaseError: the key cannot be stored or looked up; nothing was done.
        """
        if key is None:
            return await work(Attempt(resource, is_repeated=False))
        async with self._turn((user_id, scope, key)):
            row = _Row(user_id, scope, key, _digest(asked))
            now = self._now()
            found = await self._writer.change(lambda connection: row.claim(connection, resource, now))
            if found.digest != row.digest:
                raise KeyReusedError(
                    f"Idempotency-Key: {key!r} came with another request before; a new request needs a new key"
                )
            if found.answer is not None:
                return found.answer
            try:
                answer = await work(Attempt(found.resource, found.is_repeated))
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
    """The requests with one key that are there at this moment."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


class _Found(NamedTuple):
    """What is stored under a key; `is_repeated`: from before."""

    digest: str
    resource: str
    answer: Answer | None
    is_repeated: bool


class _Row(NamedTuple):
    """A key with what is asked under it; `claim` runs in the writer's transactions."""

    user_id: str
    scope: str
    key: str
    digest: str

    async def claim(self, connection: AsyncConnection, resource: str, now: datetime) -> _Found:
        """What is stored under this key; nothing yet: it is stored. Keys that are too old go."""
        table = idempotency_keys.c
        await connection.execute(delete(idempotency_keys).where(table.created_at < now - KEPT))
        found = (
            await connection.execute(select(table.digest, table.resource, table.answer).where(self.is_it))
        ).one_or_none()
        if found is not None:
            return _Found(found.digest, found.resource, found.answer, is_repeated=True)
        await connection.execute(
            insert(idempotency_keys), {**self._asdict(), "resource": resource, "answer": None, "created_at": now}
        )
        return _Found(self.digest, resource, None, is_repeated=False)

    @property
    def is_it(self) -> Any:
        table = idempotency_keys.c
        return (table.user_id == self.user_id) & (table.scope == self.scope) & (table.key == self.key)


def _digest(asked: object) -> str:
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
