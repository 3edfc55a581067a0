"""The inbox: what clients have sent by way of a server that does not run their conversation."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, NamedTuple

from sqlalchemy import BigInteger, delete, func, insert, literal_column, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from server.db.engine import Engines
from server.db.repositories.leases import NOW
from server.db.tables import conversations, inbox, leases
from server.db.writer import TableRepository, Writer
from server.errors import ConversationNotFoundError

KEEP: Final = timedelta(minutes=10)
"""So long an answer is kept for whoever asked."""


class Letter(NamedTuple):
    """Something that was sent: an event's payload, to be found behind the event `after` where it was delivered."""

    id: str
    conversation_id: str
    after: int
    event: str


class InboxRepository(TableRepository):
    """Keeps `Letter`s in the order in which they came to each conversation, until they are answered.

    How old they are is judged by the database's clock: those of the servers may be apart.
    """

    def __init__(self, engines: Engines, writer: Writer) -> None:
        super().__init__(engines, writer)
        now = NOW[engines.kind]
        self._now = literal_column(now, BigInteger)
        # PostgreSQL finds by an index what is older than a time that stays the same for a statement, and only that.
        self._begun_at = literal_column(now.replace("clock_timestamp()", "now()"), BigInteger)

    async def put(self, conversation_id: str, event: bytes, *, after: int) -> str:
        """Keep it durably; returns its id. `ConversationNotFoundError`: it was deleted."""
        letter_id = secrets.token_hex(12)

        async def apply(connection: AsyncConnection) -> None:
            there = select(conversations.c.id).where(conversations.c.id == conversation_id).with_for_update(read=True)
            if (await connection.execute(there)).first() is None:  # or it would lie here for good
                raise ConversationNotFoundError(conversation_id)
            same = inbox.c.conversation_id == conversation_id
            last = (await connection.execute(select(func.max(inbox.c.number)).where(same))).scalar_one()
            row = {
                "id": letter_id,
                "conversation_id": conversation_id,
                "number": 0 if last is None else last + 1,
                "after": after,
                "event": event.decode(),
            }
            await connection.execute(insert(inbox).values(**row, created_at=self._now))

        await self._writer.change(apply)
        return letter_id

    async def waiting(self, conversation_id: str) -> list[Letter]:
        """Those of one conversation that are not answered, in their order."""
        table = inbox.c
        statement = (
            select(table.id, table.conversation_id, table.after, table.event)
            .where(table.conversation_id == conversation_id, table.answer.is_(None))
            .order_by(table.number, table.created_at, table.id)
        )
        return [
            Letter(row.id, row.conversation_id, row.after, row.event) for row in await self._engines.select(statement)
        ]

    async def waiting_for(self, server_id: str) -> set[str]:
        """The conversations that this server runs and for which something waits."""
        same = leases.c.conversation_id == inbox.c.conversation_id
        statement = select(inbox.c.conversation_id).join(leases, same)
        rows = await self._engines.select(statement.where(leases.c.owner == server_id, inbox.c.answer.is_(None)))
        return {row.conversation_id for row in rows}

    async def answer(self, letter_id: str, answer: Mapping[str, Any]) -> None:
        """Answer it; what was answered long ago is removed."""

        async def apply(connection: AsyncConnection) -> None:
            await connection.execute(update(inbox).where(inbox.c.id == letter_id).values(answer=dict(answer)))
            old = (inbox.c.answer.is_not(None)) & (
                inbox.c.created_at < self._begun_at - KEEP // timedelta(microseconds=1)
            )
            await connection.execute(delete(inbox).where(old))

        await self._writer.change(apply)

    async def answer_to(self, letter_id: str) -> Mapping[str, Any] | None:
        """What it was answered, None: nothing yet. Where its conversation was deleted meanwhile, that is the answer."""
        rows = await self._engines.select(select(inbox.c.answer).where(inbox.c.id == letter_id))
        answer = rows[0].answer if rows else {"error": ConversationNotFoundError.__name__, "text": ""}
        return json.loads(answer) if isinstance(answer, str) else answer
