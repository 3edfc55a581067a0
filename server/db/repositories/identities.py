"""Who is who at others: the users for whom a provider or a proxy vouches, by what those call them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from sqlalchemy import ColumnElement, delete, func, insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from agent_core.events.event import utc_now
from server.auth.identity import Role
from server.auth.names import look_of
from server.db.repositories.users import NameTakenError, UserError, UserRecord, add_user, digest_of, user_of
from server.db.tables import used_states, users
from server.db.tables import user_identities as table
from server.db.writer import TableRepository

BY_PROXY: Final = "proxy"
"""The issuer of those whom a proxy names; providers' are addresses."""
MAX_USED_STATES: Final = 50_000
_TRIES: Final = 5


class IdentityRepository(TableRepository):
    """Keeps which user an `issuer` means by a `subject`: both as they are written, and by nothing else."""

    async def find(self, issuer: str, subject: str) -> UserRecord | None:
        """The user, who may be disabled; None where nobody was known by that yet."""
        rows = await self._engines.select(
            select(users).join_from(table, users, users.c.id == table.c.user_id).where(_is(issuer, subject))
        )
        return user_of(rows[0]) if rows else None

    async def add(self, issuer: str, subject: str, names: Sequence[str], role: Role, email: str | None) -> UserRecord:
        """Make a user with the first of these names that nobody has, or that looks like nobody's; or the one there is.

        The address is left out where another user has it or is called so: it says nothing of who that is. `UserError`.
        """

        async def apply(connection: AsyncConnection) -> UserRecord:
            known = select(users).join_from(table, users, users.c.id == table.c.user_id).where(_is(issuer, subject))
            if (row := (await connection.execute(known)).first()) is not None:
                return user_of(row)
            looks = [look_of(name) for name in names]
            taken = set((await connection.execute(select(users.c.look).where(users.c.look.in_(looks)))).scalars())
            free = [name for name, look in zip(names, looks, strict=True) if look not in taken]
            if not free:
                raise UserError("all that you may be called here are taken; ask an administrator")
            called = (users.c.email == email) | (users.c.look == look_of(email or ""))
            theirs = select(func.count()).select_from(users).where(called)
            is_new = email is not None and not await connection.scalar(theirs)
            user = await add_user(connection, free[0], role, email if is_new else None, "")
            await connection.execute(insert(table), {"issuer": issuer, "subject": subject, "user_id": user.id})
            return user

        for _ in range(_TRIES - 1):
            try:
                return await self._writer.change(apply)
            except (NameTakenError, IntegrityError):  # somebody was faster: look again
                continue
        return await self._writer.change(apply)

    async def take(self, state: str, lasts: timedelta) -> bool:
        """Whether this is the first time within so long, durably; False, too, where far too many come at once."""
        now = utc_now()

        async def apply(connection: AsyncConnection) -> bool:
            await connection.execute(delete(used_states).where(used_states.c.expires_at <= now))
            if (await connection.scalar(select(func.count()).select_from(used_states)) or 0) >= MAX_USED_STATES:
                return False
            await connection.execute(insert(used_states), {"digest": digest_of(state), "expires_at": now + lasts})
            return True

        try:
            return await self._writer.change(apply)
        except IntegrityError:
            return False


def _is(issuer: str, subject: str) -> ColumnElement[bool]:
    return (table.c.issuer == issuer) & (table.c.subject == subject)
