"""Users of a server with accounts, and the links that count once."""

from __future__ import annotations

import hashlib
import secrets
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Row, delete, exists, insert, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from agent_core.errors import DrydockError
from agent_core.events.event import utc_now
from server.auth.identity import FIRST, Role
from server.auth.names import checked_email, checked_name, look_of
from server.db.tables import one_time_links, sign_ins
from server.db.tables import users as table
from server.db.writer import TableRepository

LINK_TIME: Final = timedelta(days=3)
"""For so long an invitation or a new password can be taken up."""
FIRST_LINK_TIME: Final = timedelta(hours=24)


class UserError(DrydockError):
    """A change of users that is not made; the message says why, and what to do."""


class NameTakenError(UserError):
    """Another user has this name, one that looks like it, or this address."""


class UnknownUserError(UserError):
    """There is no such user."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no user {name[:100]!r}; `drydock users list` names all")


class LinkOverError(UserError):
    """The link was used, has expired, or was never one: nobody is told which."""

    def __init__(self) -> None:
        super().__init__("This link no longer counts: it was used, or its time is over. Ask for another one.")


@dataclass(frozen=True, slots=True)
class UserRecord:
    """A user. `password` is the hash, None where there is none yet, empty for who signs in elsewhere."""

    id: str
    name: str
    email: str | None
    role: Role
    disabled: bool
    created_at: datetime
    password: str | None = None


@dataclass(frozen=True, slots=True)
class OneTimeLink:
    """What a link is for: a new password of `user`, or else a new user with this `role`, who `is_first` or nobody."""

    user: UserRecord | None
    role: Role
    expires_at: datetime
    is_first: bool = False


class UserRepository(TableRepository):
    """Keeps users. There is always an administrator who is not disabled, once there was one."""

    async def all(self) -> list[UserRecord]:
        """All, by name."""
        return [user_of(row) for row in await self._engines.select(select(table).order_by(table.c.look))]

    async def get(self, user_id: str) -> UserRecord | None:
        return _first(await self._engines.select(select(table).where(table.c.id == user_id)))

    async def named(self, name: str) -> UserRecord | None:
        """The user of this name, in any case, or of this address."""
        return _first(await self._engines.select(select(table).where(_is_called(name))))

    async def has_administrator(self) -> bool:
        return bool(await self._engines.select(select(table.c.id).where(_ADMINISTERS).limit(1)))

    async def add(self, name: str, role: Role, *, email: str | None = None, password: str | None = None) -> UserRecord:
        """Add a user durably; the first administrator gets the id of the only user that there was before.

        Raises `NameRefusedError` or `NameTakenError`.
        """
        return await self._writer.change(lambda connection: add_user(connection, name, role, email, password))

    async def change(self, name: str, *, role: Role | None = None, disabled: bool | None = None) -> UserRecord:
        """Change what is not None; a disabled user is let in by nothing, and has to sign in anew when enabled again.

        Raises `UnknownUserError`, or `UserError` where nobody would administer the server any more.
        """
        values = {name: value for name, value in (("role", role), ("disabled", disabled)) if value is not None}

        async def apply(connection: AsyncConnection) -> UserRecord:
            # Whoever changes an administrator has all of them to themselves: two cannot demote each other.
            theirs = select(table.c.id).where(_ADMINISTERS).order_by(table.c.id).with_for_update()
            kept = (await connection.execute(theirs)).all()
            user = await _locked(connection, name)
            if values:
                await connection.execute(update(table).where(table.c.id == user.id).values(**values))
            if kept and not await connection.scalar(select(exists().where(_ADMINISTERS))):
                raise UserError(f"{user.name} is the only administrator; make somebody else one first")
            if disabled:
                await _end(connection, user.id)
            return user_of((await connection.execute(select(table).where(table.c.id == user.id))).one())

        return await self._writer.change(apply)

    async def set_password(self, user_id: str, password: str, *, keeps: str = "") -> None:
        """Keep another hash; every sign-in ends but the one with the id `keeps`, and links for it are over."""

        async def apply(connection: AsyncConnection) -> None:
            await connection.execute(update(table).where(table.c.id == user_id).values(password=password))
            await _end(connection, user_id, keeps=keeps)

        await self._writer.change(apply)

    async def renew_hash(self, user: UserRecord, password: str) -> None:
        """Keep another hash of the same password, unless it was changed meanwhile."""
        same = (table.c.id == user.id) & (table.c.password == user.password)
        await self._writer.execute(update(table).where(same).values(password=password))

    async def make_link(
        self,
        *,
        role: Role | None = None,
        name: str | None = None,
        made_by: str | None = None,
        lasts: timedelta = LINK_TIME,
    ) -> tuple[str, datetime]:
        """A link for a new user with this role, or for a new password of a user; returns it and its end.

        A further link for the same user takes the place of the former. Raises `UnknownUserError`.
        """
        link, now = secrets.token_urlsafe(32), utc_now()

        async def apply(connection: AsyncConnection) -> None:
            user = await _locked(connection, name) if name is not None else None
            if user is not None and user.disabled:
                raise UserError(f"{user.name} is disabled; enable the account first")
            gone = one_time_links.c.expires_at <= now
            mine = one_time_links.c.user_id == user.id if user is not None else gone
            await connection.execute(delete(one_time_links).where(or_(gone, mine)))
            await connection.execute(
                insert(one_time_links),
                {
                    "digest": digest_of(link),
                    "user_id": None if user is None else user.id,
                    "role": None if user is not None else role,
                    "made_by": made_by,
                    "created_at": now,
                    "expires_at": now + lasts,
                },
            )

        await self._writer.change(apply)
        return link, now + lasts

    async def link(self, link: str) -> OneTimeLink:
        """What it is for; `LinkOverError`."""
        return _purpose(await self._engines.select(_link_row(link)))

    async def use_link(self, link: str, *, name: str, email: str | None, password: str) -> UserRecord:
        """Make the user, or set the new password, and end the link, all or nothing.

        Raises `LinkOverError`, `NameRefusedError` or `NameTakenError`; the link counts on after the latter two.
        """

        async def apply(connection: AsyncConnection) -> UserRecord:
            purpose = _purpose((await connection.execute(_link_row(link))).all())
            used = await connection.execute(delete(one_time_links).where(one_time_links.c.digest == digest_of(link)))
            if used.rowcount != 1:
                raise LinkOverError  # another one was faster
            if purpose.user is None:
                return await add_user(connection, name, purpose.role, email, password, is_first=purpose.is_first)
            changed = update(table).where(table.c.id == purpose.user.id, table.c.disabled.is_(False))
            if (await connection.execute(changed.values(password=password))).rowcount != 1:
                raise LinkOverError
            await _end(connection, purpose.user.id)
            return purpose.user

        return await self._writer.change(apply)


_others: Final = table.alias().c
_ADMINISTERS: Final = (table.c.role == Role.ADMINISTRATOR) & table.c.disabled.is_(False)


def digest_of(secret: str) -> str:
    """By what a token, a sign-in or a link is known, without being known."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _is_called(name: str) -> Any:
    by_name = table.c.look == look_of(name)
    return or_(by_name, table.c.email == name.strip().lower()) if "@" in name else by_name


async def _locked(connection: AsyncConnection, name: str) -> UserRecord:
    """The user, whom nobody else changes until the end of the transaction."""
    row = (await connection.execute(select(table).where(_is_called(name)).with_for_update())).first()
    if row is None:
        raise UnknownUserError(name)
    return user_of(row)


async def add_user(
    connection: AsyncConnection,
    name: str,
    role: Role,
    email: str | None,
    password: str | None,
    *,
    is_first: bool = False,
) -> UserRecord:
    """See `UserRepository.add`; within a transaction."""
    name = checked_name(name)
    email = checked_email(email) if email else None
    has_first = await connection.scalar(select(exists().where(table.c.id == FIRST)))
    if is_first and has_first:
        raise LinkOverError  # another one was faster
    user_id = FIRST if role is Role.ADMINISTRATOR and not has_first else uuid.uuid4().hex
    user = UserRecord(user_id, name, email, role, disabled=False, created_at=utc_now(), password=password)
    row = {
        "id": user.id,
        "name": name,
        "look": look_of(name),
        "email": email,
        "password": password,
        "role": role,
        "disabled": False,
        "created_at": user.created_at,
    }
    # Users are asked for by name or address: the one may not be the other of somebody else.
    called = {row["look"], look_of(email)} if email else {row["look"]}
    addresses = {one.strip().lower() for one in (name, email or "") if "@" in one}
    same = or_(table.c.look.in_(called), table.c.email.in_(addresses))
    found = (await connection.execute(select(table).where(same))).first()
    if found is not None:
        raise _taken(name, email, user_of(found))
    try:
        await connection.execute(insert(table), row)
    except IntegrityError as error:
        raise NameTakenError(f"{name}: somebody else was faster; try again") from error
    return user


def _taken(name: str, email: str | None, other: UserRecord) -> NameTakenError:
    if look_of(name) != look_of(other.name):
        if email is None or email not in (other.email, other.name.lower()):
            return NameTakenError("name: it is the address of another user; choose another one")
        return NameTakenError(f"email: another user has the address {email}")
    if name.casefold() == other.name.casefold():
        return NameTakenError(f"name: there is a user {other.name} already; choose another one")
    return NameTakenError("name: it looks like the name of another user; choose another one")


def _purpose(rows: Sequence[Row[Any]]) -> OneTimeLink:
    if not rows or rows[0].ends_at <= utc_now():
        raise LinkOverError
    (row,) = rows
    if row.is_for is not None:
        if row.id is None or row.disabled:
            raise LinkOverError
        return OneTimeLink(user_of(row), Role(row.role), row.ends_at)
    # Links for the first administrator are many, one for each start; the first that is used is the last.
    is_first = row.made_by is None and row.gives == Role.ADMINISTRATOR
    if is_first and row.is_administered:
        raise LinkOverError
    return OneTimeLink(None, Role(row.gives), row.ends_at, is_first)


async def _end(connection: AsyncConnection, user_id: str, *, keeps: str = "") -> None:
    """End what was begun with the former password, and what could still change it."""
    await connection.execute(delete(sign_ins).where(sign_ins.c.user_id == user_id, sign_ins.c.id != keeps))
    await connection.execute(delete(one_time_links).where(one_time_links.c.user_id == user_id))


def _link_row(link: str) -> Any:
    row = one_time_links.c
    administered = select(exists().where(_others.role == Role.ADMINISTRATOR, _others.disabled.is_(False)))
    chosen = select(
        *(row.user_id.label("is_for"), row.role.label("gives"), row.made_by, row.expires_at.label("ends_at"), table),
        administered.scalar_subquery().label("is_administered"),
    )
    return chosen.outerjoin_from(one_time_links, table, table.c.id == row.user_id).where(row.digest == digest_of(link))


def _first(rows: Sequence[Row[Any]]) -> UserRecord | None:
    return user_of(rows[0]) if rows else None


def user_of(row: Row[Any]) -> UserRecord:
    """The user of a row of their table."""
    return UserRecord(row.id, row.name, row.email, Role(row.role), bool(row.disabled), row.created_at, row.password)
