"""Delivery to one webhook: conversation after conversation, one request at a time, until the receiver has it all."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from agent_core.errors import EventStoreError
from agent_core.events.serialization import from_payload
from agent_core.events.store import EventStore
from agent_core.troubles import Trouble, coded
from server.clock import careful_now
from server.db.repositories.webhooks import StoredWebhook, WebhookChanges, WebhookRepository
from server.doors.webhooks.sender import DeliveryOutcome, Sender
from server.wire.envelope import is_hidden, to_record, wire_time, without_view
from server.wire.fields import ACTIONS, ADDITIONS, OBSERVATIONS
from server.wire.frames import to_json

TYPE: Final = "conversation.events"
MAX_EVENTS: Final = 100
MAX_BYTES: Final = 512 * 1024
EVENT_TYPES: Final = frozenset({*ACTIONS, *ADDITIONS, *OBSERVATIONS}) - {"null"}
WAITS: Final = (1.0, 5.0, 30.0, 120.0, 600.0, 1800.0, 3600.0)
"""Seconds after the first, second, … failure in a row; after more of them, the last of these."""

GIVES_UP_AFTER: Final = timedelta(days=3)
MAX_WAITING: Final = 10_000
"""More conversations than these are not remembered by name: the database is asked instead."""

logger = logging.getLogger(__name__)


class WebhookDelivery:
    """Sends what one webhook has not been told, in the order of each log, at least once.

    While it may not (`may_send`) it only notes what there is; `look` has it go on.
    """

    def __init__(
        self,
        webhook: StoredWebhook,
        repository: WebhookRepository,
        store: EventStore,
        sender: Sender,
        *,
        waits: tuple[float, ...] = WAITS,
        now: Callable[[], datetime] = careful_now,
        may_send: Callable[[], bool] = lambda: True,
    ) -> None:
        self.webhook = webhook
        self._repository = repository
        self._store = store
        self._sender = sender
        self._waits = waits
        self._now = now
        self._may_send = may_send
        self._waiting: dict[str, None] = {}
        self._must_look = True
        self._failures = 0
        self._wake = asyncio.Event()
        self._wake.set()

    def offer(self, conversation_id: str) -> None:
        if not self.webhook.active or self.webhook.conversation_id not in (None, conversation_id):
            return
        if len(self._waiting) >= MAX_WAITING:
            self._must_look = True
        else:
            self._waiting[conversation_id] = None
        self._wake.set()

    def look(self) -> None:
        self._must_look = True
        self._wake.set()

    async def run(self) -> None:
        while self.webhook.active:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._work_off()
            except EventStoreError as error:
                logger.warning("webhook %s: the database failed, it is tried again: %s", self.webhook.id, error)
                self.look()
                await asyncio.sleep(self._waits[min(2, len(self._waits) - 1)])

    async def _work_off(self) -> None:
        while self.webhook.active and self._may_send() and (self._waiting or self._must_look):
            if not self._waiting:
                self._must_look = False
                self._waiting |= dict.fromkeys(await self._repository.behind(self.webhook))
                continue
            conversation_id = next(iter(self._waiting))
            del self._waiting[conversation_id]
            batch = await self._tell(conversation_id)
            if batch is not None and not batch.is_last:
                self._waiting[conversation_id] = None  # behind the others, whose turn it is

    async def _tell(self, conversation_id: str) -> Batch | None:
        after = await self._repository.position(self.webhook, conversation_id)
        batch = await next_batch(self._store, self.webhook, conversation_id, after, self._now())
        if not batch.body:
            if batch.upto > after:
                await self._repository.move(self.webhook.id, conversation_id, batch.upto)
            return batch
        while (outcome := await self._sender.send(self.webhook, batch.message_id, batch.body)).problem:
            await self._failed(outcome, conversation_id)
            if not self.webhook.active:
                return None
            await asyncio.sleep(self._wait(outcome))
            if not self._may_send():
                self.offer(conversation_id)
                return None
            if await self._store.last_id(conversation_id) < batch.upto:
                return batch  # it was deleted meanwhile, and nothing of it is to be told any more
        self._failures = 0
        fares: WebhookChanges = {"delivered_at": self._now(), "failing_since": None, "problem": ""}
        await self._repository.move(self.webhook.id, conversation_id, batch.upto, **fares)
        self.webhook = replace(self.webhook, **fares)
        return batch

    async def _failed(self, outcome: DeliveryOutcome, conversation_id: str) -> None:
        self._failures += 1
        since = self.webhook.failing_since or self._now()
        is_over = outcome.is_gone or self._now() - since >= GIVES_UP_AFTER
        active = self.webhook.active and not is_over
        logger.log(
            logging.WARNING if is_over or self._failures == 1 else logging.DEBUG,
            "webhook %s, of conversation %s: %s%s",
            self.webhook.id,
            conversation_id,
            outcome.problem,
            "; nothing more is sent until it is made active again" if is_over else "",
            extra=coded(Trouble.WEBHOOK_GIVEN_UP if is_over else Trouble.WEBHOOK_FAILED, conversation_id),
        )
        fares: WebhookChanges = {"active": active, "failing_since": since, "problem": outcome.problem}
        await self._repository.update(self.webhook.id, **fares)
        self.webhook = replace(self.webhook, **fares)  # stored, then seen

    def _wait(self, outcome: DeliveryOutcome) -> float:
        usual = self._waits[min(self._failures, len(self._waits)) - 1]
        return max(outcome.wished_seconds, usual * random.uniform(0.9, 1.1))  # noqa: S311 - only spreads the load


@dataclass(frozen=True, slots=True)
class Batch:
    """The next events for one webhook, up to `upto`; one `message_id` for all attempts, no `body` if none is wanted."""

    upto: int
    message_id: str = ""
    body: bytes = b""
    is_last: bool = True


async def next_batch(
    store: EventStore, webhook: StoredWebhook, conversation_id: str, after: int, now: datetime
) -> Batch:
    """What there is behind the event `after`."""
    page = await store.read(conversation_id, after=after, limit=MAX_EVENTS)
    events: list[bytes] = []
    size, upto, first, last = 0, after, -1, -1
    for stored in page:
        wire = to_record(from_payload(stored.payload, stored.id, conversation_id))
        name = wire.get("action") or wire.get("observation")
        if name != "null" and not is_hidden(wire) and (not webhook.events or name in webhook.events):
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
