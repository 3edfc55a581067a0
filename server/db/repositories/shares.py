"""Shares: who else may read a conversation, or write to it, than whose it is."""

from __future__ import annotations

import hashlib
import secrets
import uuid
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import delete, func, insert, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from agent_core.errors import DrydockError
from agent_core.events.event import utc_now
from server.auth.identity import Identity
from server.auth.shared_links import LINK_PREFIX
from server.db.tables import conversations
from server.db.tables import shares as table
from server.db.writer import TableRepository

MAX_SHARES: Final = 200
"""Of one conversation."""

KEPT: Final = timedelta(days=30)
"""For so long one that has ended is still listed."""


class Access(StrEnum):
    """What somebody may do with a conversation."""

    READ = "read"
    WRITE = "write"
    OWNER = "owner"


class TooManySharesError(DrydockError):
    """The conversation is shared as often as one may be."""

    def __init__(self) -> None:
        super().__init__(f"this conversation is shared {MAX_SHARES} times already; take a share back first")


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One of a conversation: by a link, or with the user `user_id`; without `expires_at` until it is taken back."""

    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    conversation_id: str
    user_id: str | None = None
    access: Access
    created_at: datetime = field(default_factory=utc_now)
    expires_at: datetime | None = None

    def has_ended(self, now: datetime) -> bool:
        return self.expires_at is not None and self.expires_at <= now


class ShareRepository(TableRepository):
    """Keeps `Share`; of a link's token only the digest."""

    async def add(self, share: Share) -> str | None:
        """Keep it durably, in the place of one with the same user; returns a link's token, which nobody can ask again.

        None for a conversation that is not there (any more), and "" with a user. Raises `TooManySharesError`.
        """
        token = "" if share.user_id is not None else LINK_PREFIX + secrets.token_urlsafe(32)
        values = {**asdict(share), "access": str(share.access), "digest": digest_of(token) if token else None}
        of = table.c.conversation_id == share.conversation_id

        async def apply(connection: AsyncConnection) -> bool:
            there = select(conversations.c.id).where(conversations.c.id == share.conversation_id)
            if (await connection.execute(there.with_for_update())).first() is None:
                return False
            old = table.c.expires_at < utc_now() - KEPT
            if share.user_id is not None:
                old = or_(old, table.c.user_id == share.user_id)
            await connection.execute(delete(table).where(of & old))
            count = select(func.count()).select_from(table).where(of)
            if (await connection.execute(count)).scalar_one() >= MAX_SHARES:
                raise TooManySharesError
            await connection.execute(insert(table), values)
            return True

        return token if await self._writer.change(apply) else None

    async def all(self, conversation_id: str) -> list[Share]:
        """Those of a conversation, oldest first, and those that ended lately."""
        statement = select(*_SHOWN).where(table.c.conversation_id == conversation_id)
        rows = await self._engines.select(statement.order_by(table.c.created_at, table.c.id))
        found = [_share(row._mapping) for row in rows]
        return [one for one in found if not one.has_ended(utc_now() - KEPT)]

    async def remove(self, conversation_id: str, share_id: str) -> bool:
        """Take it back; False when there is none of this id."""

        async def apply(connection: AsyncConnection) -> bool:
            this = (table.c.conversation_id == conversation_id) & (table.c.id == share_id)
            return (await connection.execute(delete(table).where(this))).rowcount > 0

        return await self._writer.change(apply)

    async def with_user(self, user_id: str, *, limit: int) -> list[Share]:
        """At most `limit` of those with this user that have not ended, newest first."""
        statement = select(*_SHOWN).where((table.c.user_id == user_id) & _lasts())
        newest = statement.order_by(table.c.created_at.desc(), table.c.id).limit(limit)
        return [_share(row._mapping) for row in await self._engines.select(newest)]

    async def links(self, tokens: Collection[str]) -> list[Share]:
        """Those of these tokens' links that have not ended."""
        digests = [digest_of(token) for token in tokens]
        rows = await self._engines.select(select(*_SHOWN).where(table.c.digest.in_(digests) & _lasts()))
        return [_share(row._mapping) for row in rows]

    async def access(self, conversation_id: str, owner: str, identity: Identity) -> Access | None:
        """What `identity` may do with the conversation of this `owner`, as of now; None: it is not to know of it."""
        if identity.user_id == owner:
            return Access.OWNER
        theirs: Any = table.c.id.in_(identity.links)
        if not identity.is_guest:
            theirs = or_(theirs, table.c.user_id == identity.user_id)
        statement = select(table.c.access).where((table.c.conversation_id == conversation_id) & theirs & _lasts())
        found = {row.access for row in await self._engines.select(statement)}
        return Access.WRITE if Access.WRITE in found else Access.READ if found else None


def digest_of(token: str) -> str:
    """By what a link's token is known: 64 hexadecimal digits."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


_SHOWN: Final = [column for column in table.c if column.name != "digest"]


def _lasts() -> Any:
    return or_(table.c.expires_at.is_(None), table.c.expires_at > utc_now())


def _share(values: Any) -> Share:
    return Share(**{**values, "access": Access(values["access"])})
