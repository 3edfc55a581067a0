"""What a client sends under a key of its own is taken once, however often it comes (an addition to the protocol)."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Final

from agent_core.errors import ClientToolError, NoSuchEventError, NotStuckError
from agent_core.events.serialization import AnyEvent, from_payload
from agent_core.events.store import EventStore
from server.db.idempotency_keys import Attempt, IdempotencyKeys, sending_scope
from server.errors import ConversationNotFoundError
from server.session.images import ImagesRefusedError

REFUSALS: Final = (ClientToolError, ConversationNotFoundError, ImagesRefusedError, NoSuchEventError, NotStuckError)
"""Errors of `deliver` after which nothing is in the log."""
PAGE: Final = 200

_EVENT_ID: Final = "event_id"


async def take_once(
    event: AnyEvent,
    *,
    conversation_id: str,
    user_id: str,
    keys: IdempotencyKeys,
    store: EventStore,
    deliver: Callable[[str, AnyEvent], Awaitable[AnyEvent]],
) -> AnyEvent:
    """Deliver an event with a `client_key`, unless that was done already; returns it as it was stored then.

    Raises:
        KeyReusedError: something else was sent to this conversation under the same key.
        KeyInUseError: it is still being delivered for the first time.
        DrydockError: as `deliver` raises it; the same may be sent again.
    """

    async def work(attempt: Attempt) -> dict[str, int]:
        if attempt.is_repeated:
            # The attempt before may have been broken off behind the append.
            known = await _find(store, conversation_id, event.client_key, after=int(attempt.resource))
            if known is not None:
                return {_EVENT_ID: known}
        return {_EVENT_ID: (await deliver(conversation_id, event)).id}

    answer = await keys.once(
        event.client_key,
        work,
        user_id=user_id,
        scope=sending_scope(conversation_id),
        asked=event.model_dump(mode="json", exclude={"id", "timestamp", "client_key"}),
        resource=str(await store.last_id(conversation_id)),
        refusals=REFUSALS,
    )
    (stored,) = await store.read(conversation_id, after=answer[_EVENT_ID] - 1, limit=1)
    return from_payload(stored.payload, stored.id)


async def _find(store: EventStore, conversation_id: str, key: str | None, *, after: int) -> int | None:
    mark = json.dumps({"client_key": key}, separators=(",", ":"))[1:-1].encode()
    while page := await store.read(conversation_id, after=after, limit=PAGE):
        for stored in page:
            after = stored.id
            if mark in stored.payload and from_payload(stored.payload, stored.id).client_key == key:
                return stored.id
    return None
