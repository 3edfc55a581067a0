"""Users' sign-ins with MCP servers, and those that were begun: encrypted."""

from __future__ import annotations

import hashlib
import logging
from typing import Any, NamedTuple

from sqlalchemy import Row, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from agent_core.errors import DrydockError
from agent_core.events.event import utc_now
from agent_core.mcp.grants import ServerSignIn, sign_in_id
from server.auth.secrets import SecretUnreadableError
from server.db.tables import mcp_sign_ins as table
from server.db.writer import SealedRepository

MAX_SIGN_INS = 1_000
"""Of one user."""

_log = logging.getLogger(__name__)


class TooManySignInsError(DrydockError):
    """The user has as many sign-ins as one may have."""

    def __init__(self) -> None:
        super().__init__(f"there are sign-ins with {MAX_SIGN_INS} MCP servers already, as many as one may have")


class BegunSignIn(NamedTuple):
    """Whose sign-in was begun, and what was kept of it, as text."""

    user_id: str
    id: str
    pending: str


class McpSignInRepository(SealedRepository):
    """Keeps users' sign-ins; what this server's key cannot read counts as not there, is kept and logged."""

    async def all(self, user_id: str = "") -> list[ServerSignIn]:
        """The user's sign-ins, the latest change first."""
        rows = await self._engines.select(
            select(table).where(table.c.user_id == user_id).order_by(table.c.updated_at.desc(), table.c.id)
        )
        return [sign_in for row in rows if (sign_in := self._read(row)) is not None]

    async def get(self, server: str, user_id: str = "") -> ServerSignIn | None:
        rows = await self._engines.select(select(table).where(_is(user_id, sign_in_id(server))))
        return self._read(rows[0]) if rows else None

    async def save(self, sign_in: ServerSignIn, user_id: str = "") -> None:
        """Keep it durably, in place of an earlier one, unless it says nothing; `TooManySignInsError`."""
        await self._change(user_id, sign_in, {})

    async def begin(self, sign_in: ServerSignIn, state: str, pending: str, user_id: str = "") -> None:
        """Keep, beside a sign-in that is there already or else this one, what is to be found again by its state.

        What was begun with the same server before is over.
        """
        name = sign_in_id(sign_in.server)
        sealed = self._box.encrypt(pending, purpose=purpose_of_pending(user_id, name))
        await self._change(user_id, sign_in, {"state": _digest(state), "pending": sealed}, keeps_known=True)

    async def begun(self, state: str) -> BegunSignIn | None:
        """What was begun with this state, and is not over yet."""
        rows = await self._engines.select(select(table).where(table.c.state == _digest(state)))
        if not rows:
            return None
        (row,) = rows
        try:
            text = self._box.decrypt(row.pending, purpose=purpose_of_pending(row.user_id, row.id))
        except SecretUnreadableError as error:
            _log.warning("a sign-in of user %r that was begun is over: %s", row.user_id, error)
            return None
        return BegunSignIn(row.user_id, row.id, text)

    async def take(self, state: str) -> bool:
        """End what was begun with this state, durably; True for one of those who do."""
        row = update(table).where(table.c.state == _digest(state)).values(state=None, pending=None)
        return await self._writer.execute(row) > 0

    async def _change(
        self, user_id: str, sign_in: ServerSignIn, further: dict[str, Any], *, keeps_known: bool = False
    ) -> None:
        name = sign_in_id(sign_in.server)
        sealed = self._box.encrypt(sign_in.to_text(), purpose=purpose_of_sign_in(user_id, name))
        values = {"updated_at": utc_now(), **further}

        async def apply(connection: AsyncConnection) -> None:
            if not (keeps_known or sign_in.is_wanted or sign_in.grant is not None):
                await connection.execute(delete(table).where(_is(user_id, name)))
                return
            known = {} if keeps_known else {"sealed": sealed}
            done = await connection.execute(update(table).where(_is(user_id, name)).values(**values, **known))
            if done.rowcount:
                return
            count = select(func.count()).select_from(table).where(table.c.user_id == user_id)
            if (await connection.scalar(count) or 0) >= MAX_SIGN_INS:
                raise TooManySignInsError
            await connection.execute(insert(table), {"user_id": user_id, "id": name, "sealed": sealed, **values})

        await self._writer.change(apply)

    def _read(self, row: Row[Any]) -> ServerSignIn | None:
        try:
            text = self._box.decrypt(row.sealed, purpose=purpose_of_sign_in(row.user_id, row.id))
            return ServerSignIn.model_validate_json(text)
        except (SecretUnreadableError, ValueError) as error:
            _log.warning("a sign-in of user %r counts as not there: %s", row.user_id, type(error).__name__)
            return None


def _is(user_id: str, name: str) -> Any:
    return (table.c.user_id == user_id) & (table.c.id == name)


def _digest(state: str) -> str:
    return hashlib.sha256(state.encode("utf-8", "surrogatepass")).hexdigest()


def purpose_of_sign_in(user_id: str, name: str) -> str:
    """What the encrypted sign-in is bound to."""
    return f"mcp sign-in/{name}/{user_id}"


def purpose_of_pending(user_id: str, name: str) -> str:
    """What the encrypted beginning of one is bound to."""
    return f"mcp sign-in begun/{name}/{user_id}"
