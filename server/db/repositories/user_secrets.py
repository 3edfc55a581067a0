"""Secrets that users give to their conversations' commands: by name, the values encrypted."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple, Protocol

from pydantic import SecretStr
from sqlalchemy import RowMapping, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from agent_core.errors import DrydockError
from agent_core.events.event import utc_now
from agent_core.security.secrets import StaticSecret
from agent_core.troubles import Trouble, coded
from server.auth.secrets import SecretUnreadableError
from server.db.tables import secrets as table
from server.db.writer import SealedRepository

MAX_SECRETS = 500
"""Of one user; every command is looked through for their names."""

_log = logging.getLogger(__name__)


class SecretExistsError(DrydockError):
    """The user has another secret of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Secret {name} already exists")


class TooManySecretsError(DrydockError):
    """The user has as many secrets as one may have."""

    def __init__(self) -> None:
        super().__init__(f"there are {MAX_SECRETS} secrets already, as many as one may have; delete one first")


class SecretEntry(NamedTuple):
    """What may be told of a secret."""

    name: str
    description: str


class SecretStore(Protocol):
    """Keeps the secrets of users ("" without users), each under its name."""

    async def names(self, user_id: str = "") -> list[SecretEntry]:
        """What may be told of the user's secrets."""

    async def values(self, user_id: str = "") -> dict[str, StaticSecret]:
        """The user's secrets by name; one that cannot be read is left out and logged."""

    async def create(self, name: str, value: str, description: str, user_id: str = "") -> None:
        """Keep it durably; raises `SecretExistsError` or `TooManySecretsError`."""

    async def change(
        self,
        name: str,
        *,
        new_name: str,
        description: str | None = None,
        value: str | None = None,
        user_id: str = "",
    ) -> bool:
        """Change what is not None, durably; False when there is none of this name.

        Raises `SecretExistsError` where another has the new name, `SecretUnreadableError` where renaming cannot read
        it.
        """

    async def delete(self, name: str, user_id: str = "") -> bool:
        """Forget it; False when there is none of this name."""


class SecretRepository(SealedRepository):
    """The `SecretStore` in the database."""

    async def names(self, user_id: str = "") -> list[SecretEntry]:
        statement = select(table.c.name, table.c.description).where(table.c.user_id == user_id).order_by(table.c.name)
        return [SecretEntry(row.name, row.description) for row in await self._engines.select(statement)]

    async def values(self, user_id: str = "") -> dict[str, StaticSecret]:
        """The user's secrets by name; one that this server's key cannot read is left out and logged."""
        rows = await self._engines.select(select(table).where(table.c.user_id == user_id))
        found = {}
        for row in rows:
            try:
                value = self._box.decrypt(row.sealed, purpose=purpose_of_secret(user_id, row.name))
            except SecretUnreadableError as error:
                extra = coded(Trouble.STORAGE_UNREADABLE)
                _log.warning("the secret %r of user %r is left out: %s", row.name, user_id, error, extra=extra)
            else:
                found[row.name] = StaticSecret(secret=SecretStr(value), description=row.description)
        return found

    async def create(self, name: str, value: str, description: str, user_id: str = "") -> None:
        """See `SecretStore.create`; there may be `MAX_SECRETS`."""
        row = self._sealed(user_id, name, value) | {"user_id": user_id, "description": description}

        async def apply(connection: AsyncConnection) -> None:
            if await _found(connection, user_id, name) is not None:
                raise SecretExistsError(name)
            count = select(func.count()).select_from(table).where(table.c.user_id == user_id)
            if (await connection.scalar(count) or 0) >= MAX_SECRETS:
                raise TooManySecretsError
            await connection.execute(insert(table), row)

        await self._writer.change(apply)

    async def change(
        self,
        name: str,
        *,
        new_name: str,
        description: str | None = None,
        value: str | None = None,
        user_id: str = "",
    ) -> bool:
        """See `SecretStore.change`."""

        async def apply(connection: AsyncConnection) -> bool:
            row = await _found(connection, user_id, name)
            if row is None:
                return False
            if new_name != name and await _found(connection, user_id, new_name) is not None:
                raise SecretExistsError(new_name)
            changes: dict[str, Any] = {"updated_at": utc_now()}
            if value is not None:
                changes |= self._sealed(user_id, new_name, value)
            elif new_name != name:  # what is sealed is bound to its name
                changes |= self._sealed(
                    user_id, new_name, self._box.decrypt(row["sealed"], purpose=purpose_of_secret(user_id, name))
                )
            if description is not None:
                changes["description"] = description
            await connection.execute(update(table).where(_is(user_id, name)).values(changes))
            return True

        return await self._writer.change(apply)

    async def delete(self, name: str, user_id: str = "") -> bool:
        return await self._writer.execute(delete(table).where(_is(user_id, name))) > 0

    def _sealed(self, user_id: str, name: str, value: str) -> dict[str, Any]:
        sealed = self._box.encrypt(value, purpose=purpose_of_secret(user_id, name))
        return {"name": name, "sealed": sealed, "updated_at": utc_now()}


async def _found(connection: AsyncConnection, user_id: str, name: str) -> RowMapping | None:
    return (await connection.execute(select(table).where(_is(user_id, name)))).mappings().one_or_none()


def _is(user_id: str, name: str) -> Any:
    return (table.c.user_id == user_id) & (table.c.name == name)


def purpose_of_secret(user_id: str, name: str) -> str:
    """What the encrypted text is bound to."""
    return f"secret/{name}/{user_id}"
