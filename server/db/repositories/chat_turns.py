"""Chat turns: which conversation an answer of a chat came from, by the digest of the chat's history up to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import delete, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from server.db.tables import chat_turns
from server.db.writer import TableRepository


class ChatTurn(NamedTuple):
    """An answer: the conversation that gave it, and the last event of it."""

    conversation_id: str
    event_id: int


class ChatTurnRepository(TableRepository):
    """Keeps `ChatTurn`s."""

    async def get(self, user_id: str, digest: str) -> ChatTurn | None:
        statement = select(chat_turns.c.conversation_id, chat_turns.c.event_id).where(
            chat_turns.c.user_id == user_id, chat_turns.c.digest == digest
        )
        rows = await self._engines.select(statement)
        return ChatTurn(rows[0].conversation_id, rows[0].event_id) if rows else None

    async def keep(self, user_id: str, digests: Sequence[str], turn: ChatTurn) -> None:
        """Note it durably under each of these; the newer of two with the same history is kept."""
        rows = [{"user_id": user_id, "digest": digest, **turn._asdict()} for digest in digests]

        async def apply(connection: AsyncConnection) -> None:
            same = (chat_turns.c.user_id == user_id) & chat_turns.c.digest.in_(digests)
            await connection.execute(delete(chat_turns).where(same))
            await connection.execute(insert(chat_turns), rows)

        await self._writer.change(apply)
