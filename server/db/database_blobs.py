"""`DatabaseBlobStore`: large payloads in the database itself, for servers that share nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Set
from datetime import timedelta
from types import TracebackType
from typing import Final, Self, TypeVar

from sqlalchemy import delete, select, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from agent_core.events.event import utc_now
from server.db.blobs import PayloadLostError
from server.db.errors import database_error, is_database_failure
from server.db.tables import payloads, to_microseconds

CONNECTIONS: Final = 2
TURN_SECONDS: Final = 30.0
_T = TypeVar("_T")

_KEEP: Final = text(
    "INSERT INTO payloads (conversation_id, digest, stored_at, data) VALUES (:log, :digest, :now, :data)"
    " ON CONFLICT (conversation_id, digest) DO UPDATE SET stored_at = excluded.stored_at"
)


class DatabaseBlobStore:
    """A `BlobStore` with connections of its own, so that what is large holds up nothing small.

    It is an async context manager; `engine` makes one to that database (`Engines.another`). What a server puts there
    that has lost its lease meanwhile belongs to no event, and is collected.
    """

    def __init__(self, engine: Callable[..., AsyncEngine]) -> None:
        self._engine = engine(pool_size=CONNECTIONS, max_overflow=0, pool_timeout=TURN_SECONDS)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._engine.dispose()

    async def put(self, conversation_id: str, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        now = to_microseconds(utc_now())
        row = {"log": conversation_id, "digest": digest, "now": now, "data": data}

        async def apply(connection: AsyncConnection) -> None:
            await connection.execute(_KEEP, row)

        await self._do(apply, "A large payload could not be stored")
        return digest

    async def get(self, conversation_id: str, digest: str) -> bytes:
        same = (payloads.c.conversation_id == conversation_id) & (payloads.c.digest == digest)

        async def apply(connection: AsyncConnection) -> bytes | None:
            return (await connection.execute(select(payloads.c.data).where(same))).scalar_one_or_none()

        data = await self._do(apply, "A large payload could not be read")
        if data is None:
            raise PayloadLostError(f"a large payload of conversation {conversation_id} is not there any more")
        if hashlib.sha256(data).hexdigest() != digest:
            raise PayloadLostError(f"the large payload {digest} of {conversation_id} is damaged")
        return data

    async def delete(self, conversation_id: str) -> None:
        async def apply(connection: AsyncConnection) -> None:
            await connection.execute(delete(payloads).where(payloads.c.conversation_id == conversation_id))

        await self._do(apply, "Large payloads could not be removed")

    async def collect(self, used: Mapping[str, Set[str]], *, older_than_seconds: float) -> int:
        before = utc_now() - timedelta(seconds=older_than_seconds)
        table = payloads.c

        async def apply(connection: AsyncConnection) -> int:
            old = await connection.execute(select(table.conversation_id, table.digest).where(table.stored_at < before))
            removed = 0
            for log, digest in old.all():
                if digest not in used.get(log, frozenset()):
                    same = (table.conversation_id == log) & (table.digest == digest) & (table.stored_at < before)
                    removed += (await connection.execute(delete(payloads).where(same))).rowcount
            return removed

        return await self._do(apply, "Leftover payloads could not be removed")

    async def _do(self, apply: Callable[[AsyncConnection], Awaitable[_T]], otherwise: str) -> _T:
        try:
            async with self._engine.begin() as connection:
                return await apply(connection)
        except Exception as error:
            if not is_database_failure(error):
                raise
            raise database_error(otherwise, error) from error
