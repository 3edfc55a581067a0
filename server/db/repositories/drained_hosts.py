"""Which Docker hosts are drained and which are not, where somebody has said so of a running server."""

from __future__ import annotations

from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from server.db.writer import TableRepository

_PREFIX: Final = "drained:"
_ALL: Final = "SELECT name, value FROM shared_facts WHERE name LIKE :names"
_SAY: Final = (
    "INSERT INTO shared_facts (name, value) VALUES (:name, :value) ON CONFLICT (name) DO UPDATE SET value = :value"
)


class DrainedHosts(TableRepository):
    """The word of all servers of the database together: what one is told, the others read."""

    async def all(self) -> dict[str, bool]:
        """Whether each host of which somebody has said so is drained, by its name."""
        rows = await self._engines.fetch(_ALL, names=f"{_PREFIX}%")
        return {str(name).removeprefix(_PREFIX): value == "yes" for name, value in rows}

    async def say(self, host: str, draining: bool) -> None:
        async def apply(connection: AsyncConnection) -> None:
            named = {"name": f"{_PREFIX}{host}", "value": "yes" if draining else "no"}
            await connection.execute(text(_SAY), named)

        await self._writer.change(apply)
