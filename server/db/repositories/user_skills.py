"""Skills that users have written for their agents: texts with a header, as in files."""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from agent_core.errors import DrydockError
from agent_core.events.event import utc_now
from server.db.tables import skills as table
from server.db.writer import TableRepository

MAX_SKILLS = 200
"""Of one user."""


class TooManySkillsError(DrydockError):
    """The user has as many skills as one may have."""

    def __init__(self) -> None:
        super().__init__(f"there are {MAX_SKILLS} skills already, as many as one may have; delete one first")


class StoredSkill(NamedTuple):
    """A user's skill: its whole text, and whether agents are told of it."""

    name: str
    content: str
    enabled: bool


class SkillRepository(TableRepository):
    """Keeps users' skills."""

    async def all(self, user_id: str = "") -> list[StoredSkill]:
        """The user's skills, by name."""
        statement = select(table).where(table.c.user_id == user_id).order_by(table.c.name)
        return [_skill(row) for row in await self._engines.select(statement)]

    async def get(self, name: str, user_id: str = "") -> StoredSkill | None:
        rows = await self._engines.select(select(table).where(_is(user_id, name)))
        return _skill(rows[0]) if rows else None

    async def put(self, skill: StoredSkill, user_id: str = "") -> bool:
        """Keep it durably in place of the one of its name; returns whether there was none. Or `TooManySkillsError`."""
        values = {**skill._asdict(), "updated_at": utc_now()}

        async def apply(connection: AsyncConnection) -> bool:
            changed = await connection.execute(update(table).where(_is(user_id, skill.name)).values(values))
            if changed.rowcount:
                return False
            count = select(func.count()).select_from(table).where(table.c.user_id == user_id)
            if (await connection.scalar(count) or 0) >= MAX_SKILLS:
                raise TooManySkillsError
            await connection.execute(insert(table).values(user_id=user_id, **values))
            return True

        return await self._writer.change(apply)

    async def enable(self, name: str, *, enabled: bool, user_id: str = "") -> bool:
        """Whether agents are told of it from now on; returns whether there is one of this name."""
        statement = update(table).where(_is(user_id, name)).values(enabled=enabled, updated_at=utc_now())
        return await self._writer.execute(statement) > 0

    async def delete(self, name: str, user_id: str = "") -> bool:
        return await self._writer.execute(delete(table).where(_is(user_id, name))) > 0


def _skill(row: Any) -> StoredSkill:
    return StoredSkill(row.name, row.content, row.enabled)


def _is(user_id: str, name: str) -> Any:
    return (table.c.user_id == user_id) & (table.c.name == name)
