"""Feedback: what users say of conversations; it goes with the conversation."""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass, field
from datetime import datetime

from sqlalchemy import insert, select, tuple_

from agent_core.events.event import utc_now
from server.db.engine import Engines
from server.db.page_ids import timed_page_id, timed_position
from server.db.tables import feedback as table
from server.db.writer import Writer


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


@dataclass(frozen=True, slots=True)
class FeedbackPage:
    """Some of it, newest first, and where the next page begins (None: this was the last)."""

    results: list[Feedback]
    next_page_id: str | None


class FeedbackRepository:
    """Keeps `Feedback`. Every method raises `DatabaseError` when the database cannot be read or written."""

    def __init__(self, engines: Engines, writer: Writer) -> None:
        self._engines = engines
        self._writer = writer

    async def add(self, feedback: Feedback) -> None:
        await self._writer.execute(insert(table), asdict(feedback))

    async def list_page(
        self, *, limit: int, page_id: str | None = None, user_id: str = "", conversation_id: str | None = None
    ) -> FeedbackPage:
        """At most `limit` of this user's from `page_id` (else `InvalidPageError`) on; new ones shift nothing."""
        statement = select(table).where(table.c.user_id == user_id)
        if conversation_id is not None:
            statement = statement.where(table.c.conversation_id == conversation_id)
        if page_id is not None:
            statement = statement.where(tuple_(table.c.created_at, table.c.id) < timed_position(page_id))
        statement = statement.order_by(table.c.created_at.desc(), table.c.id.desc()).limit(limit + 1)
        found = [Feedback(**row._mapping) for row in await self._engines.select(statement)]
        more = timed_page_id(found[limit - 1].created_at, found[limit - 1].id) if len(found) > limit else None
        return FeedbackPage(found[:limit], more)
