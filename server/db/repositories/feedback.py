"""Feedback: what users say of conversations; it goes with the conversation."""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass, field
from datetime import datetime

from sqlalchemy import insert, select

from agent_core.events.event import utc_now
from server.db.page_ids import NewestFirst, newest_first, page_of
from server.db.tables import feedback as table
from server.db.writer import TableRepository


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """What a user said of a conversation, as it was up to `last_event_id`."""

    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    user_id: str
    conversation_id: str
    last_event_id: int
    created_at: datetime = field(default_factory=utc_now)
    polarity: str
    permissions: str
    email: str
    version: str


class FeedbackRepository(TableRepository):
    """Keeps `Feedback`."""

    async def add(self, feedback: Feedback) -> None:
        await self._writer.execute(insert(table), asdict(feedback))

    async def list_page(
        self, *, limit: int, page_id: str | None = None, user_id: str = "", conversation_id: str | None = None
    ) -> NewestFirst[Feedback]:
        """At most `limit` of this user's from `page_id` (else `InvalidPageError`) on; new ones shift nothing."""
        statement = select(table).where(table.c.user_id == user_id)
        if conversation_id is not None:
            statement = statement.where(table.c.conversation_id == conversation_id)
        rows = await self._engines.select(newest_first(statement, table, limit=limit, page_id=page_id))
        return page_of([Feedback(**row._mapping) for row in rows], limit)
