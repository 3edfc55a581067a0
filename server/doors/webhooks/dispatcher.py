"""All webhooks of a server, each with a delivery that hears of what is stored in its user's conversations."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Final, Protocol, Self, Unpack, runtime_checkable

from agent_core.errors import EventStoreError
from agent_core.troubles import Trouble, coded
from server.db.database import Database
from server.db.repositories.webhooks import StoredWebhook, WebhookChanges
from server.doors.webhooks.delivery import MAX_WAITING, WAITS, WebhookDelivery
from server.doors.webhooks.sender import Sender

MAX_KNOWN_USERS: Final = 4_096
PAUSE_SECONDS: Final = 30.0
RELOAD_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 60.0
"""How often it is looked for what another server has stored and could not tell."""
TELL_SECONDS: Final = 0.1
"""Another server is told of a conversation at most so often."""
_NOTHING: Final = (None, None)

logger = logging.getLogger(__name__)


@runtime_checkable
class OtherServers(Protocol):
    """Those that share the database: the clustered conversation manager knows them."""

    @property
    def does_chores(self) -> bool:
        """Whether this server does what one does for all of them."""

    def tell_stored(self, conversation_id: str) -> None:
        """Tell the others that something was stored here, or, without an id, that webhooks are others; may be lost."""

    def hear_stored(self, stored: Callable[[str], None]) -> None:
        """Call this when another has told so."""


class Webhooks:
    """Keeps and sends webhooks, an async context manager; what was not acknowledged is sent after a restart.

    `hide` is told what the process's log must not show. Where servers share the database (`others`), one of them sends,
    so that each conversation's events come in order; the others tell it what they store. What others have made, changed
    or deleted of them is noticed within `RELOAD_SECONDS`.
    """

    def __init__(
        self,
        database: Database,
        sender: Sender,
        *,
        waits: tuple[float, ...] = WAITS,
        others: OtherServers | None = None,
        hide: Callable[[Iterable[str]], None] = lambda secrets: None,
    ) -> None:
        self._hide = hide
        self._database = database
        self._sender = sender
        self._waits = waits
        self._deliveries: dict[str, tuple[WebhookDelivery, asyncio.Task[None] | None]] = {}
        self._news: dict[str, None] = {}
        self._users: OrderedDict[str, str] = OrderedDict()
        self._wake = asyncio.Event()
        self._changing = asyncio.Lock()
        self._router: asyncio.Task[None] | None = None
        self._others = others
        self._changed = asyncio.Event()
        """They were changed at another server."""
        self._looked_at = 0.0
        """When what others have stored was looked for last; 0: not since this server sends."""
        self._reloading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        for webhook in await self._database.webhooks.all():
            self._start(webhook)
        self._database.events.watch(self._note)
        self._database.conversations.watch_deletions(self._forget)
        self._router = asyncio.create_task(self._route(), name="webhook-router")
        if self._others is not None:
            self._others.hear_stored(self._note)
            self._reloading = asyncio.create_task(self._keep_reloading(), name="webhook-reload")
        return self

    async def __aexit__(self, *error: object) -> None:
        self._database.events.watch(None)
        self._database.conversations.watch_deletions(None)
        tasks = [task for _, task in self._deliveries.values() if task is not None]
        tasks += [one for one in (self._router, self._reloading) if one is not None]
        self._deliveries = {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._sender.aclose()

    def of_user(self, user_id: str) -> list[StoredWebhook]:
        found = [delivery.webhook for delivery, _ in self._deliveries.values() if delivery.webhook.user_id == user_id]
        return sorted(found, key=lambda one: (one.created_at, one.id))

    def get(self, user_id: str, webhook_id: str) -> StoredWebhook | None:
        return next((one for one in self.of_user(user_id) if one.id == webhook_id), None)

    async def create(self, webhook: StoredWebhook) -> None:
        """Keep a new one, told of what is stored from now on; `TooManyWebhooksError`: its user has too many."""
        async with self._changing:
            await self._database.webhooks.create(webhook)
            self._start(webhook)
        self._tell_changed()

    async def update(self, webhook_id: str, **changes: Unpack[WebhookChanges]) -> StoredWebhook | None:
        """Change one; one that is made active goes on where it was. None: it has been deleted meanwhile."""
        async with self._paused(webhook_id):
            await self._database.webhooks.update(webhook_id, **changes)
        self._tell_changed()
        delivery, _ = self._deliveries.get(webhook_id, _NOTHING)
        return None if delivery is None else delivery.webhook

    async def delete(self, webhook_id: str) -> None:
        async with self._paused(webhook_id):
            await self._database.webhooks.delete(webhook_id)
        self._tell_changed()

    async def replay(self, webhook_id: str, conversation_id: str, after: int) -> None:
        """Send what is behind the event `after` of a conversation (at most its end), acknowledged before or not."""
        async with self._paused(webhook_id):
            after = min(after, await self._database.events.last_id(conversation_id))
            await self._database.webhooks.move(webhook_id, conversation_id, after)
        if self._others is not None:
            self._others.tell_stored(conversation_id)

    @asynccontextmanager
    async def _paused(self, webhook_id: str) -> AsyncIterator[None]:
        """While it is changed. Then it goes on as it is stored; where that cannot be told, as it was."""
        async with self._changing:
            delivery, task = self._deliveries.get(webhook_id, _NOTHING)
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
            webhook = None if delivery is None else delivery.webhook
            try:
                try:
                    yield
                finally:
                    stored = await self._database.webhooks.all()
                webhook = next((one for one in stored if one.id == webhook_id), None)
            finally:
                if webhook is None:
                    self._deliveries.pop(webhook_id, None)
                else:
                    self._start(webhook)

    async def _keep_reloading(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(RELOAD_SECONDS):
                    await self._changed.wait()
            self._changed.clear()
            try:
                await self.reload()
            except EventStoreError as error:
                logger.info("webhooks cannot be read for now: %s", error)
            if not self._sends:
                self._looked_at = 0.0
            elif not self._looked_at or time.monotonic() > self._looked_at + LOOK_SECONDS:
                self._looked_at = time.monotonic()
                self._look_all()

    @property
    def _sends(self) -> bool:
        return self._others is None or self._others.does_chores

    async def reload(self) -> None:
        """Take up what other servers have made, changed or deleted; raises `EventStoreError`."""
        async with self._changing:
            stored = {webhook.id: webhook for webhook in await self._database.webhooks.all()}
            for webhook_id, (delivery, task) in list(self._deliveries.items()):
                if (now := stored.get(webhook_id)) is not None and _is_told_alike(now, delivery.webhook):
                    del stored[webhook_id]
                    if not self._sends:
                        delivery.webhook = now  # how it fares with whoever does
                    continue
                del self._deliveries[webhook_id]
                if task is not None:
                    task.cancel()
                    await asyncio.wait([task])
            for webhook in stored.values():
                self._start(webhook)

    def _forget(self, conversation_id: str) -> None:
        """A webhook for this conversation alone has gone with it."""
        for webhook_id, (delivery, task) in list(self._deliveries.items()):
            if delivery.webhook.conversation_id == conversation_id:
                del self._deliveries[webhook_id]
                if task is not None:
                    task.cancel()

    def _start(self, webhook: StoredWebhook) -> None:
        self._hide(webhook.secrets)
        delivery = WebhookDelivery(
            webhook,
            self._database.webhooks,
            self._database.events,
            self._sender,
            waits=self._waits,
            may_send=lambda: self._sends,
        )
        task = asyncio.create_task(self._supervised(delivery), name=f"webhook:{webhook.id}") if webhook.active else None
        self._deliveries[webhook.id] = (delivery, task)

    async def _supervised(self, delivery: WebhookDelivery) -> None:
        while True:
            try:
                return await delivery.run()
            except Exception:  # a fault of ours must not end the sending
                logger.exception("webhook %s failed unexpectedly; it goes on in a moment", delivery.webhook.id)
                delivery.look()
                await asyncio.sleep(PAUSE_SECONDS)

    def _tell_changed(self) -> None:
        if self._others is not None:
            self._others.tell_stored("")

    def _note(self, conversation_id: str) -> None:
        if not conversation_id:
            self._changed.set()
            return
        if not self._deliveries:
            return
        if len(self._news) < MAX_WAITING:
            self._news[conversation_id] = None
        else:
            self._look_all()
        self._wake.set()

    def _look_all(self) -> None:
        for delivery, _ in self._deliveries.values():
            delivery.look()

    async def _route(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._news:
                conversation_id = next(iter(self._news))
                del self._news[conversation_id]
                try:
                    user_id = await self._user_of(conversation_id)
                except EventStoreError as error:
                    text = "webhooks: whose conversation %s is cannot be read: %s"
                    logger.warning(text, conversation_id, error, extra=coded(Trouble.OTHER, conversation_id))
                    self._look_all()
                    continue
                theirs = [one for one, _ in self._deliveries.values() if one.webhook.user_id == user_id]
                if theirs and self._others is not None and not self._sends:
                    self._others.tell_stored(conversation_id)
                    await asyncio.sleep(TELL_SECONDS)
                    continue  # who sends looks for itself when it begins to
                for delivery in theirs:
                    delivery.offer(conversation_id)

    async def _user_of(self, conversation_id: str) -> str | None:
        if conversation_id not in self._users:
            record = await self._database.conversations.get(conversation_id)
            if record is None:
                return None
            self._users[conversation_id] = record.user_id
        self._users.move_to_end(conversation_id)
        while len(self._users) > MAX_KNOWN_USERS:
            self._users.popitem(last=False)
        return self._users[conversation_id]


def _is_told_alike(one: StoredWebhook, other: StoredWebhook) -> bool:
    """Whether it is the same, but for what became of the attempts to send it something."""

    def settings(webhook: StoredWebhook) -> tuple[object, ...]:
        return (webhook.url, webhook.secret, webhook.events, webhook.conversation_id, webhook.active)

    return settings(one) == settings(other)
