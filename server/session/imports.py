"""Imports: a new conversation whose log begins with one that was recorded elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from agent_core.events.recorded import Recorded
from agent_core.events.stream import EventStream
from server.db.conversations import ConversationRecord
from server.db.database import Database
from server.session.unfinished_forks import making

BATCH = 200


async def import_conversation(
    database: Database, record: ConversationRecord, events: Sequence[Recorded], *, secrets: Sequence[str]
) -> None:
    """Make the new conversation `record`, whose log is `events`, with these secrets masked; it is not started.

    Raises:
        EventStoreError: it cannot be written; nothing is left of it.
    """
    async with making(database, record.id):
        stream = await EventStream.open(record.id, database.events)
        stream.secrets.add(secrets)
        for start in range(0, len(events), BATCH):
            await stream.add_events(events[start : start + BATCH])
        stream.close()
        # Last, so that nobody ever sees one that is not whole, not even when this process is killed.
        await database.conversations.create(record)
