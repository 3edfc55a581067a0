"""What users show for who they are: tokens of programs and sign-ins of browsers, kept by their digests alone."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Row, Table, delete, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from agent_core.events.event import utc_now
from server.auth.identity import ALL_SCOPES, FIRST, Identity, Permission, Role
from server.db.repositories.identities import BY_PROXY
from server.db.repositories.users import UserError, digest_of
from server.db.tables import access_tokens, sign_ins, user_identities, users
from server.db.writer import TableRepository

MAX_TOKENS: Final = 100
MAX_SIGN_INS: Final = 50
"""Of one user; a further sign-in ends the one that was used least lately."""

SIGN_IN_TIME: Final = timedelta(days=30)
TOKEN_PREFIX: Final = "drydock_"  # noqa: S105 - what tokens begin with, so that scanners for lost ones know them
_NOTED_EVERY: Final = timedelta(minutes=1)
_MAX_TEXT: Final = 200
_AT_ONCE: Final = 500

OF_TOKEN: Final = "token:"  # noqa: S105 - how the names of credentials begin
OF_SIGN_IN: Final = "sign-in:"
OF_PROXY: Final = "proxy:"
CONFIGURED: Final = "configured"
"""The name of the token that the server's settings have, which is the first administrator's."""


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A token of a user, without what it is shown by."""

    id: str
    name: str
    scopes: frozenset[Permission]
    created_at: datetime
    expires_at: datetime | None
    used_at: datetime | None


@dataclass(frozen=True, slots=True)
class BrowserSignIn:
    """A browser in which a user is signed in, and from where it asked first."""

    id: str
    address: str
    browser: str
    created_at: datetime
    expires_at: datetime
    used_at: datetime


class CredentialRepository(TableRepository):
    """Keeps `TokenRecord`s and `BrowserSignIn`s; each look asks the database, so that a revocation counts at once."""

    async def by_token(self, token: str) -> Identity | None:
        """The user whose token this is; None for one that is none, has expired, or is a disabled user's."""
        return await self._shown(access_tokens, token)

    async def by_sign_in(self, secret: str) -> Identity | None:
        """The same for what a browser keeps of its sign-in."""
        return await self._shown(sign_ins, secret)

    async def first(self) -> Identity | None:
        """The first administrator; None where there is none yet, or the account is disabled."""
        found = await self._engines.select(
            select(users.c.name, users.c.role).where(users.c.id == FIRST, users.c.disabled.is_(False))
        )
        return Identity(FIRST, found[0].name, Role(found[0].role), credential=CONFIGURED) if found else None

    async def still(self, credentials: Iterable[str]) -> Mapping[str, Identity]:
        """Who is behind each of these, as it is now; without those that count no more."""
        found: dict[str, Identity] = {}
        for table, prefix in ((access_tokens, OF_TOKEN), (sign_ins, OF_SIGN_IN)):
            ids = sorted({one.removeprefix(prefix) for one in credentials if one.startswith(prefix)})
            for start in range(0, len(ids), _AT_ONCE):
                some = table.c.id.in_(ids[start : start + _AT_ONCE])
                for row in await self._engines.select(_valid(table).where(some)):
                    identity = _identity(table, row)
                    found[identity.credential] = identity
        found |= await self._named_by_proxy({one for one in credentials if one.startswith(OF_PROXY)})
        if CONFIGURED in credentials and (first := await self.first()) is not None:
            found[CONFIGURED] = first
        return found

    async def _named_by_proxy(self, credentials: Collection[str]) -> dict[str, Identity]:
        found: dict[str, Identity] = {}
        subjects = sorted(one.removeprefix(OF_PROXY) for one in credentials)
        for start in range(0, len(subjects), _AT_ONCE):
            some = user_identities.c.subject.in_(subjects[start : start + _AT_ONCE])
            joined = select(user_identities.c.subject, users.c.id, users.c.name, users.c.role).join_from(
                user_identities, users, users.c.id == user_identities.c.user_id
            )
            enabled = joined.where(user_identities.c.issuer == BY_PROXY, some, users.c.disabled.is_(False))
            for row in await self._engines.select(enabled):
                name = OF_PROXY + row.subject
                found[name] = Identity(row.id, row.name, Role(row.role), credential=name)
        return found

    async def note_use(self, credentials: Collection[str]) -> None:
        """Note that these were used just now."""

        async def apply(connection: AsyncConnection) -> None:
            for table, prefix in ((access_tokens, OF_TOKEN), (sign_ins, OF_SIGN_IN)):
                ids = [one.removeprefix(prefix) for one in credentials if one.startswith(prefix)]
                if ids:
                    await connection.execute(update(table).where(table.c.id.in_(ids)).values(used_at=utc_now()))

        await self._writer.change(apply)

    async def begin(self, user_id: str, *, address: str, browser: str, lasts: timedelta = SIGN_IN_TIME) -> str:
        """Sign a browser in; returns what it is to show. The user's sign-ins that are over are forgotten."""
        secret, now = secrets.token_urlsafe(32), utc_now()

        async def apply(connection: AsyncConnection) -> None:
            own = sign_ins.c.user_id == user_id
            await connection.execute(delete(sign_ins).where(own, sign_ins.c.expires_at <= now))
            kept = select(sign_ins.c.id).where(own).order_by(sign_ins.c.used_at.desc()).limit(MAX_SIGN_INS - 1)
            latest = [row.id for row in await connection.execute(kept)]
            await connection.execute(delete(sign_ins).where(own, sign_ins.c.id.not_in(latest)))
            await connection.execute(
                insert(sign_ins),
                {
                    "id": uuid.uuid4().hex,
                    "digest": digest_of(secret),
                    "user_id": user_id,
                    "address": address[:_MAX_TEXT],
                    "browser": browser[:_MAX_TEXT],
                    "created_at": now,
                    "expires_at": now + lasts,
                    "used_at": now,
                },
            )

        await self._writer.change(apply)
        return secret

    async def sign_ins(self, user_id: str) -> list[BrowserSignIn]:
        """Those that count, the latest used first."""
        own = (sign_ins.c.user_id == user_id) & (sign_ins.c.expires_at > utc_now())
        rows = await self._engines.select(
            select(sign_ins).where(own).order_by(sign_ins.c.used_at.desc(), sign_ins.c.id)
        )
        return [
            BrowserSignIn(row.id, row.address, row.browser, row.created_at, row.expires_at, row.used_at) for row in rows
        ]

    async def end_sign_in(self, user_id: str, sign_in_id: str) -> bool:
        """End one; False: the user has none of this id."""
        return await self._end(sign_ins, user_id, sign_in_id)

    async def make_token(
        self, user_id: str, name: str, scopes: Collection[Permission], *, lasts: timedelta | None = None
    ) -> tuple[str, TokenRecord]:
        """A token that counts for so long (None: until it is revoked); what it is shown by is told here alone.

        Raises `UserError` where the user has as many as one may have.
        """
        secret, now = TOKEN_PREFIX + secrets.token_urlsafe(32), utc_now()
        made = TokenRecord(uuid.uuid4().hex, name, frozenset(scopes), now, None if lasts is None else now + lasts, None)

        async def apply(connection: AsyncConnection) -> None:
            own = access_tokens.c.user_id == user_id
            await connection.execute(delete(access_tokens).where(own, access_tokens.c.expires_at <= now))
            if (await connection.scalar(select(func.count()).select_from(access_tokens).where(own)) or 0) >= MAX_TOKENS:
                raise UserError(f"there are {MAX_TOKENS} tokens already, as many as one may have; revoke some")
            row = {
                "id": made.id,
                "digest": digest_of(secret),
                "user_id": user_id,
                "name": name,
                "scopes": sorted(made.scopes),
                "created_at": now,
                "expires_at": made.expires_at,
                "used_at": None,
            }
            await connection.execute(insert(access_tokens), row)

        await self._writer.change(apply)
        return secret, made

    async def tokens(self, user_id: str) -> list[TokenRecord]:
        """Those that count, the newest first."""
        own = access_tokens.c.user_id == user_id
        rows = await self._engines.select(
            select(access_tokens)
            .where(own, _counts(access_tokens))
            .order_by(access_tokens.c.created_at.desc(), access_tokens.c.id)
        )
        return [
            TokenRecord(row.id, row.name, _scopes(row.scopes), row.created_at, row.expires_at, row.used_at)
            for row in rows
        ]

    async def revoke(self, user_id: str, token_id: str) -> bool:
        """Revoke one; False: the user has none of this id."""
        return await self._end(access_tokens, user_id, token_id)

    async def _end(self, table: Table, user_id: str, ident: str) -> bool:
        return await self._writer.execute(delete(table).where(table.c.user_id == user_id, table.c.id == ident)) > 0

    async def _shown(self, table: Table, secret: str) -> Identity | None:
        rows: Sequence[Row[Any]] = await self._engines.select(_valid(table).where(table.c.digest == digest_of(secret)))
        return _identity(table, rows[0]) if rows else None


def _valid(table: Table) -> Any:
    """The credentials that count now, with their users."""
    columns = [table.c.id, users.c.id.label("user_id"), users.c.name.label("user_name"), users.c.role]
    columns += [table.c.scopes] if table is access_tokens else []
    joined = select(*columns).join_from(table, users, users.c.id == table.c.user_id)
    return joined.where(users.c.disabled.is_(False), _counts(table))


def _counts(table: Table) -> Any:
    return or_(table.c.expires_at.is_(None), table.c.expires_at > utc_now())


def _identity(table: Table, row: Row[Any]) -> Identity:
    if table is access_tokens:
        return Identity(row.user_id, row.user_name, Role(row.role), _scopes(row.scopes), OF_TOKEN + row.id)
    return Identity(row.user_id, row.user_name, Role(row.role), ALL_SCOPES, OF_SIGN_IN + row.id)


def _scopes(stored: object) -> frozenset[Permission]:
    known = {str(one) for one in Permission}
    return frozenset(Permission(one) for one in stored if one in known) if isinstance(stored, list) else frozenset()
