"""What is sent at a time: the next events of one conversation, in the form in which clients read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from agent_core.events.serialization import from_payload
from agent_core.events.store import EventStore
from server.db.webhooks import StoredWebhook
from server.wire.envelope import is_hidden, to_record, wire_time, without_view
from server.wire.fields import ACTIONS, ADDITIONS, OBSERVATIONS
from server.wire.frames import to_json

TYPE: Final = "conversation.events"
MAX_EVENTS: Final = 100
MAX_BYTES: Final = 512 * 1024
EVENT_TYPES: Final = frozenset({*ACTIONS, *ADDITIONS, *OBSERVATIONS}) - {"null"}


@dataclass(frozen=True, slots=True)
class Batch:
    """The next events of a conversation for one webhook.

    Attributes:
        upto: the last event that was looked at: the position once this is acknowledged.
        message_id: the same each time that this batch is sent, and another one for any other batch.
        body: the JSON to send; empty where none of the events is wanted.
        is_last: whether the log ended here.
    """

    upto: int
    message_id: str = ""
    body: bytes = b""
    is_last: bool = True


async def next_batch(
    store: EventStore, webhook: StoredWebhook, conversation_id: str, after: int, now: datetime
) -> Batch:
    """What there is behind the event `after`.

    Raises:
        EventStoreError: the log cannot be read.
    """
    page = await store.read(conversation_id, after=after, limit=MAX_EVENTS)
    events: list[bytes] = []
    size, upto, first, last = 0, after, -1, -1
    for stored in page:
        wire = to_record(from_payload(stored.payload, stored.id))
        if _is_wanted(webhook, wire):
            event = to_json(without_view(wire))
            if events and size + len(event) > MAX_BYTES:
                break
            events.append(event)
            size += len(event)
            first, last = (stored.id if first < 0 else first), stored.id
        upto = stored.id
    is_last = len(page) < MAX_EVENTS and (not page or upto == page[-1].id)
    if not events:
        return Batch(upto, is_last=is_last)
    ids = {"conversation_id": conversation_id, "first_event_id": first, "last_event_id": last}
    head = to_json({"type": TYPE, "timestamp": wire_time(now), "webhook_id": webhook.id})
    body = b'%s,"data":%s,"events":[%s]}}' % (head[:-1], to_json(ids)[:-1], b",".join(events))
    return Batch(upto, f"{webhook.id}.{conversation_id}.{first}-{last}", body, is_last)


def _is_wanted(webhook: StoredWebhook, wire: Mapping[str, Any]) -> bool:
    name = wire.get("action") or wire.get("observation")
    if name == "null" or is_hidden(wire):
        return False
    return not webhook.events or name in webhook.events
