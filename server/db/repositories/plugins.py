"""Plugins that are installed: each with its files as they were at one commit."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Row, delete, false, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from agent_core.errors import DrydockError
from agent_core.events.event import utc_now
from server.db.tables import plugins as table
from server.db.writer import TableRepository

MAX_PLUGINS: Final = 50
"""Of one user."""

SERVER: Final = "server"
"""Owns the plugins that the operator has installed for all users."""


def owner_of(user_id: str) -> str:
    """What a user's plugins are kept under."""
    return f"user:{user_id}"


class PluginTakenError(DrydockError):
    """There is another plugin of this name, or as many as there may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPlugin:
    """A plugin at one commit.

    Attributes:
        source: the address of its repository, without credentials.
        ref: the branch, tag or commit that was asked for; empty: the repository's choice. An update asks for it again.
        path: the plugin's folder in the repository; empty: the whole of it.
        commit: the full hash.
        archive: its files, as a compressed tar file; empty where they were not read (`PluginRepository.archive`).
    """

    owner: str
    name: str
    source: str
    ref: str = ""
    path: str = ""
    commit: str
    enabled: bool = True
    installed_at: datetime = field(default_factory=utc_now)
    archive: bytes = field(default=b"", repr=False)


_FACTS: Final = [column for column in table.c if column.name != "archive"]


class PluginRepository(TableRepository):
    """Keeps `StoredPlugin`s."""

    async def all(self, owner: str) -> list[StoredPlugin]:
        """The owner's plugins, by name, without their archives."""
        statement = select(*_FACTS).where(table.c.owner == owner).order_by(table.c.name)
        return [_plugin(row) for row in await self._engines.select(statement)]

    async def get(self, owner: str, name: str) -> StoredPlugin | None:
        """One of them, without its archive."""
        rows = await self._engines.select(select(*_FACTS).where(_is(owner, name)))
        return _plugin(rows[0]) if rows else None

    async def archive(self, owner: str, name: str, commit: str) -> bytes | None:
        """The plugin's files at this commit; None: that is not there any more."""
        statement = select(table.c.archive).where(_is(owner, name) & (table.c.commit == commit))
        rows = await self._engines.select(statement)
        return rows[0].archive if rows else None

    async def add(self, plugin: StoredPlugin) -> None:
        """Keep it durably; `PluginTakenError`: its owner has one of this name, or `MAX_PLUGINS`."""

        async def apply(connection: AsyncConnection) -> None:
            if await connection.scalar(select(table.c.name).where(_is(plugin.owner, plugin.name))) is not None:
                raise PluginTakenError(f"there is a plugin {plugin.name!r} already; remove it first, or update it")
            count = select(func.count()).select_from(table).where(table.c.owner == plugin.owner)
            if (await connection.scalar(count) or 0) >= MAX_PLUGINS:
                raise PluginTakenError(f"there are {MAX_PLUGINS} plugins already; remove one that is not needed")
            await connection.execute(insert(table), asdict(plugin))

        await self._writer.change(apply)

    async def replace(self, plugin: StoredPlugin, before: str) -> bool:
        """Put its new commit in the place of the commit `before`; False: that is not there any more."""
        values = {"commit": plugin.commit, "ref": plugin.ref, "archive": plugin.archive}
        statement = update(table).where(_is(plugin.owner, plugin.name) & (table.c.commit == before))
        return await self._writer.execute(statement.values(**values, installed_at=utc_now())) > 0

    async def enable(self, owner: str, name: str, *, enabled: bool) -> bool:
        """Whether it is used from now on; returns whether it is there."""
        return await self._writer.execute(update(table).where(_is(owner, name)).values(enabled=enabled)) > 0

    async def delete(self, owner: str, name: str) -> bool:
        return await self._writer.execute(delete(table).where(_is(owner, name))) > 0

    async def keep_only(self, owner: str, plugins: Collection[StoredPlugin]) -> None:
        """Forget the owner's plugins but for these, at their commits."""
        kept = or_(false(), *(_is(owner, one.name) & (table.c.commit == one.commit) for one in plugins))
        await self._writer.execute(delete(table).where((table.c.owner == owner) & ~kept))


def _plugin(row: Row[Any]) -> StoredPlugin:
    return StoredPlugin(**row._mapping)


def _is(owner: str, name: str) -> Any:
    return (table.c.owner == owner) & (table.c.name == name)
