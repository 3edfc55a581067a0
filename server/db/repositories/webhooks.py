"""Users' webhooks, and how far the receiver of each has acknowledged the logs of conversations."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypedDict, Unpack

from pydantic import SecretStr
from sqlalchemy import Row, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from agent_core.events.event import utc_now
from agent_core.events.masking import secrets_in_address
from server.auth.secrets import SEALED, SecretUnreadableError
from server.db.errors import TooManyWebhooksError
from server.db.tables import conversations, to_microseconds, webhook_positions, webhooks
from server.db.writer import SealedRepository

MAX_PER_USER = 20
MAX_BEHIND = 10_000

# What a new webhook has no position for begins at its creation; the ids of a log are in the order of its times.
_POSITION = """
    SELECT coalesce(
        (SELECT position FROM webhook_positions WHERE webhook_id = :webhook AND conversation_id = :log),
        (SELECT min(id) - 1 FROM events WHERE conversation_id = :log AND timestamp >= :since),
        (SELECT max(id) FROM events WHERE conversation_id = :log),
        -1
    )
"""
_BEHIND = """
    SELECT c.id FROM conversations c
    LEFT JOIN webhook_positions p ON p.webhook_id = :webhook AND p.conversation_id = c.id
    WHERE c.user_id = :user
    AND coalesce(p.position, -1) < (SELECT max(e.id) FROM events e WHERE e.conversation_id = c.id)
    AND (p.position IS NOT NULL OR :since <= (
        SELECT e.timestamp FROM events e WHERE e.conversation_id = c.id ORDER BY e.id DESC LIMIT 1
    ))
    ORDER BY c.created_at LIMIT :limit
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredWebhook:
    """An address that is told what happens in a user's conversations.

    Attributes:
        events: the public types of the events that it is told of; empty for all.
        conversation_id: the only conversation that it is told of; None for all of its user's.
        active: whether it is told of anything; while it is not, its positions stay.
        failing_since: since when nothing that was sent was acknowledged; None while all is well.
        problem: what was wrong with the last attempt; empty while all is well.
    """

    id: str
    user_id: str
    url: str
    secret: SecretStr
    events: tuple[str, ...] = ()
    conversation_id: str | None = None
    active: bool = True
    created_at: datetime = field(default_factory=utc_now)
    delivered_at: datetime | None = None
    failing_since: datetime | None = None
    problem: str = ""

    @property
    def secrets(self) -> list[str]:
        """The values in it that nobody else should see."""
        return [*secrets_in_address(self.url), *filter(None, [self.secret.get_secret_value()])]


class WebhookChanges(TypedDict, total=False):
    """Changes of a webhook."""

    url: str
    events: tuple[str, ...]
    secret: SecretStr
    active: bool
    delivered_at: datetime | None
    failing_since: datetime | None
    problem: str


class WebhookRepository(SealedRepository):
    """Keeps `StoredWebhook`s, their addresses (which may hold a key) and secrets encrypted."""

    async def all(self) -> list[StoredWebhook]:
        rows = await self._engines.select(select(webhooks).order_by(webhooks.c.created_at, webhooks.c.id))
        return [self._webhook(row) for row in rows]

    async def secrets_of(self, user_id: str) -> list[str]:
        """The values in the user's webhooks that nobody else should see."""
        rows = await self._engines.select(select(webhooks).where(webhooks.c.user_id == user_id))
        return [secret for row in rows for secret in self._webhook(row).secrets]

    async def create(self, webhook: StoredWebhook) -> None:
        """Keep it durably; `TooManyWebhooksError` where its user has `MAX_PER_USER`."""
        values = {column.name: getattr(webhook, column.name) for column in webhooks.c}
        values |= {"secret": self._sealed(webhook.id, webhook.secret), "events": list(webhook.events)}
        values["url"] = self._sealed_url(webhook.id, webhook.url)

        async def apply(connection: AsyncConnection) -> None:
            owned = select(func.count()).select_from(webhooks).where(webhooks.c.user_id == webhook.user_id)
            if (await connection.execute(owned)).scalar_one() >= MAX_PER_USER:
                raise TooManyWebhooksError(f"there are {MAX_PER_USER} webhooks already; delete one that is not needed")
            await connection.execute(insert(webhooks), values)

        await self._writer.change(apply)

    async def update(self, webhook_id: str, **changes: Unpack[WebhookChanges]) -> bool:
        values: dict[str, Any] = dict(changes)
        if "events" in changes:
            values["events"] = list(changes["events"])
        if "secret" in changes:
            values["secret"] = self._sealed(webhook_id, changes["secret"])
        if "url" in changes:
            values["url"] = self._sealed_url(webhook_id, changes["url"])
        return await self._writer.execute(update(webhooks).where(webhooks.c.id == webhook_id).values(values)) > 0

    async def delete(self, webhook_id: str) -> None:

        async def apply(connection: AsyncConnection) -> None:
            await connection.execute(delete(webhook_positions).where(webhook_positions.c.webhook_id == webhook_id))
            await connection.execute(delete(webhooks).where(webhooks.c.id == webhook_id))

        await self._writer.change(apply)

    async def position(self, webhook: StoredWebhook, conversation_id: str) -> int:
        """The last event of this conversation that need not be sent: acknowledged, or from before the webhook."""
        since = to_microseconds(webhook.created_at)
        rows = await self._engines.fetch(_POSITION, webhook=webhook.id, log=conversation_id, since=since)
        return int(rows[0][0])

    async def move(
        self, webhook_id: str, conversation_id: str, position: int, **changes: Unpack[WebhookChanges]
    ) -> None:
        row = {"webhook_id": webhook_id, "conversation_id": conversation_id}

        async def apply(connection: AsyncConnection) -> None:
            for table, name in ((webhooks, webhook_id), (conversations, conversation_id)):
                if (await connection.execute(select(table.c.id).where(table.c.id == name))).first() is None:
                    return  # it was deleted meanwhile
            same = (webhook_positions.c.webhook_id == webhook_id) & (
                webhook_positions.c.conversation_id == conversation_id
            )
            moved = await connection.execute(update(webhook_positions).where(same).values(position=position))
            if moved.rowcount == 0:
                await connection.execute(insert(webhook_positions), {**row, "position": position})
            if changes:
                await connection.execute(update(webhooks).where(webhooks.c.id == webhook_id).values(dict(changes)))

        await self._writer.change(apply)

    async def behind(self, webhook: StoredWebhook) -> list[str]:
        """Conversations whose log may hold what this webhook has not been told, oldest first; at most `MAX_BEHIND`."""
        since = to_microseconds(webhook.created_at)
        rows = await self._engines.fetch(
            _BEHIND, webhook=webhook.id, user=webhook.user_id, since=since, limit=MAX_BEHIND
        )
        found = [str(row[0]) for row in rows]
        return [one for one in found if webhook.conversation_id in (None, one)]

    def _sealed(self, webhook_id: str, secret: SecretStr) -> str:
        return self._box.encrypt(secret.get_secret_value(), purpose=purpose_of_webhook(webhook_id))

    def _sealed_url(self, webhook_id: str, url: str) -> str:
        return self._box.encrypt(url, purpose=purpose_of_address(webhook_id))

    def _webhook(self, row: Row[Any]) -> StoredWebhook:
        values = dict(row._mapping)
        try:
            secret = self._box.decrypt(values["secret"], purpose=purpose_of_webhook(values["id"]))
            if is_sealed_address(values["url"]):
                values["url"] = self._box.decrypt(values["url"], purpose=purpose_of_address(values["id"]))
        except SecretUnreadableError as error:
            secret, values["active"], values["problem"] = "", False, f"secret: {error}"
            if is_sealed_address(values["url"]):
                values["url"] = ""
        return StoredWebhook(**{**values, "secret": SecretStr(secret), "events": tuple(values["events"])})


def purpose_of_webhook(webhook_id: str) -> str:
    """What the encrypted secret is bound to."""
    return f"webhook/{webhook_id}"


def purpose_of_address(webhook_id: str) -> str:
    """What the encrypted address is bound to."""
    return f"webhook/url/{webhook_id}"


def is_sealed_address(url: str) -> bool:
    """Whether a stored address is encrypted; an earlier version left them as they were."""
    return url.startswith(SEALED)
