"""Leases: which servers share the database, and which of them runs a conversation."""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from sqlalchemy import TextClause, bindparam, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from agent_core.errors import StaleOwnerError
from server.db import event_rows, postgresql
from server.db.engine import Engines
from server.db.notices import notify
from server.db.tables import leases, owners
from server.db.writer import TableRepository, Writer

FORGET_SECONDS: Final = 3600.0
"""So long after its end a server's row is removed, where it runs nothing any more."""

NOW: Final = {
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)",
    "postgresql": "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)",
}
"""Microseconds since 1970 by the clock of the database, the only one that counts."""

_HELD: Final = (
    "SELECT l.conversation_id, l.owner, s.url, l.live, l.turn FROM leases l JOIN servers s ON s.id = l.owner"
    " WHERE s.expires_at > "
)

_ENDED: Final = "this server was not heard of in time, and others carry on what it ran: nothing was stored"


class Lease(NamedTuple):
    """Who runs a conversation: the server `owner`, which is asked at `url`, and what it tells of it."""

    conversation_id: str
    owner: str
    url: str
    live: Mapping[str, Any] | None = None
    turn: object = None
    """What `read_turn` of `server.db.repositories.turns` reads."""


class LeaseRepository(TableRepository):
    """Servers and leases. A server's time is in the database's clock, and once it is over it does not come back.

    Times are in seconds.
    """

    def __init__(self, engines: Engines, writer: Writer) -> None:
        super().__init__(engines, writer)
        self._now = NOW[engines.kind]
        is_sqlite = engines.kind == "sqlite"  # it has one writer at a time, and no locks of rows
        self._words = {
            "{now}": self._now,
            "{for share}": "" if is_sqlite else " FOR SHARE",
            "{if free}": "" if is_sqlite else " FOR UPDATE SKIP LOCKED",
        }

    # --- servers ---

    async def register(self, url: str, seconds: float, *, former: str = "") -> str:
        """Make a new server known for so long; returns its id, random. From now on it alone may write here.

        What is left of it under its `former` id is given back.
        """
        server_id = secrets.token_hex(8)

        async def apply(connection: AsyncConnection) -> None:
            old = self._sql(
                "DELETE FROM servers WHERE expires_at < {now} - :old AND id NOT IN (SELECT owner FROM leases)"
            )
            await connection.execute(old, {"old": int(FORGET_SECONDS * 1e6)})
            await self._retire(connection, former)
            new = self._sql("INSERT INTO servers (id, url, expires_at) VALUES (:id, :url, {now} + :time)")
            await connection.execute(new, {"id": server_id, "url": url, "time": int(seconds * 1e6)})

        await self._writer.change(apply, fenced=False)
        self._writer.fence = self._fence_of(server_id)
        if self._engines.kind == "postgresql":  # which asks it in the statement that appends
            self._engines.insert_events = partial(postgresql.insert_events, server_id=server_id)
        return server_id

    async def renew(self, server_id: str, seconds: float) -> bool:
        """Let it live for so long from now; False: its time is over."""
        statement = self._sql("UPDATE servers SET expires_at = {now} + :time WHERE id = :id AND expires_at > {now}")

        async def apply(connection: AsyncConnection) -> bool:
            renewed = await connection.execute(statement, {"id": server_id, "time": int(seconds * 1e6)})
            return bool(renewed.rowcount)

        return await self._writer.change(apply, fenced=False)

    async def retire(self, server_id: str) -> None:
        """End its time, and all its leases, and tell the others; nothing is written by it from now on."""
        await self._writer.change(lambda connection: self._retire(connection, server_id), fenced=False)

    async def _retire(self, connection: AsyncConnection, server_id: str) -> None:
        if not server_id:
            return
        await connection.execute(text("DELETE FROM leases WHERE owner = :id"), {"id": server_id})
        await connection.execute(text("DELETE FROM servers WHERE id = :id"), {"id": server_id})
        await notify(connection, {"left": server_id, "from": server_id})

    async def servers(self) -> dict[str, str]:
        """The addresses of those that are there, by their ids."""
        rows = await self._engines.fetch(f"SELECT id, url FROM servers WHERE expires_at > {self._now}")  # noqa: S608
        return {str(server_id): str(url) for server_id, url in rows}

    async def now(self) -> int:
        """Microseconds since 1970 by the database's clock."""
        ((now,),) = await self._engines.fetch(f"SELECT {self._now}")
        return int(now)

    async def does(self, chores: str, server_id: str) -> bool:
        """Whether this server is the one that does these for all of them; it is from now on, where who was is gone."""
        there = f"SELECT id FROM servers WHERE expires_at > {self._now}"  # noqa: S608 - our own words
        asked = f"SELECT value FROM shared_facts WHERE name = :chores AND value IN ({there})"  # noqa: S608
        if rows := await self._engines.fetch(asked, chores=chores):
            return bool(rows[0][0] == server_id)

        async def apply(connection: AsyncConnection) -> bool:
            names = {"chores": chores, "me": server_id}
            take = (
                "INSERT INTO shared_facts (name, value) VALUES (:chores, :me) ON CONFLICT (name)"  # noqa: S608
                f" DO UPDATE SET value = excluded.value WHERE shared_facts.value NOT IN ({there})"
            )
            await connection.execute(text(take), names)
            who = text("SELECT value FROM shared_facts WHERE name = :chores")
            return bool((await connection.execute(who, names)).scalar_one() == server_id)

        return await self._writer.change(apply)

    async def are_there(self) -> bool:
        return bool(await self.servers())

    def _fence_of(self, server_id: str) -> Any:
        statement = self._sql("SELECT 1 FROM servers WHERE id = :id AND expires_at > {now}{for share}")

        async def fence(connection: AsyncConnection) -> None:
            # The lock keeps others from taking over what this one runs before its transaction has ended.
            if (await connection.execute(statement, {"id": server_id})).first() is None:
                raise StaleOwnerError(_ENDED)

        return fence

    # --- leases ---

    async def take(self, conversation_id: str, server_id: str) -> Lease:
        """The lease of this conversation: of the server that has it, or of this one, where none has that is there.

        Who had it before writes no more: neither to this log nor to those below it.
        """

        async def apply(connection: AsyncConnection) -> Lease:
            names = {"log": conversation_id, "me": server_id}
            # In one statement, which holds the row: between two of them it could be given back.
            held = (
                "INSERT INTO leases (conversation_id, owner, epoch) VALUES (:log, '', 0) ON CONFLICT (conversation_id)"
                " DO UPDATE SET epoch = leases.epoch RETURNING owner"
            )
            owner = (await connection.execute(text(held), names)).scalar_one()
            mine = Lease(conversation_id, server_id, "")
            if owner == server_id:
                return mine
            if owner:
                names["owner"] = owner
                known = self._sql("SELECT url, expires_at > {now} FROM servers WHERE id = :owner")
                ended = self._sql("SELECT 1 FROM servers WHERE id = :owner{if free}")
                if (row := (await connection.execute(known, names)).one_or_none()) is not None:
                    url, is_alive = row
                    # What it has begun to write, it may finish: until then it holds its row. Who waited for that could
                    # write nothing else meanwhile.
                    if is_alive or (await connection.execute(ended, names)).first() is None:
                        return Lease(conversation_id, owner, url)
            epoch = await event_rows.raise_epoch(connection, conversation_id)
            below = (await connection.execute(event_rows.select_below(conversation_id))).scalars().all()
            if below:
                raised = update(owners).where(owners.c.conversation_id.in_(below)).values(epoch=owners.c.epoch + 1)
                await connection.execute(raised)
            taken = (
                "UPDATE leases SET owner = :me, epoch = :epoch, live = NULL, turn = NULL WHERE conversation_id = :log"
            )
            await connection.execute(text(taken), {**names, "epoch": epoch})
            return mine

        return await self._writer.change(apply, log=conversation_id)

    async def release(self, conversation_ids: Collection[str], server_id: str, *, handed_over: bool = False) -> None:
        """Give these back, as far as this server has them; others, who are told, may take them up (`handed_over`)."""
        if not conversation_ids:
            return
        statement = text("DELETE FROM leases WHERE owner = :me AND conversation_id IN :logs")
        prepared = statement.bindparams(bindparam("logs", expanding=True))

        async def apply(connection: AsyncConnection) -> None:
            await connection.execute(prepared, {"me": server_id, "logs": list(conversation_ids)})
            for one in conversation_ids:
                await notify(connection, {"free": one, "handed_over": handed_over, "from": server_id})

        await self._writer.change(apply)

    async def tell(self, live: Mapping[str, Mapping[str, Any]], server_id: str) -> None:
        """What this server says of conversations that it runs, by their ids."""
        if not live:
            return

        async def apply(connection: AsyncConnection) -> None:
            own = (leases.c.conversation_id == bindparam("log")) & (leases.c.owner == server_id)
            rows = [{"log": log, "facts": dict(facts)} for log, facts in live.items()]
            await connection.execute(update(leases).where(own).values(live=bindparam("facts")), rows)

        await self._writer.change(apply)

    async def all(self) -> list[Lease]:
        """Those of servers that are there."""
        rows = await self._engines.fetch(_HELD + self._now)
        return [Lease(log, owner, url, _read(live), turn) for log, owner, url, live, turn in rows]

    async def get(self, conversation_id: str) -> Lease | None:
        """The lease of this conversation; None: no server that is there has it."""
        rows = await self._engines.fetch(f"{_HELD}{self._now} AND l.conversation_id = :log", log=conversation_id)
        return Lease(conversation_id, rows[0][1], rows[0][2], _read(rows[0][3])) if rows else None

    async def free(self, states: Collection[str], limit: int) -> list[str]:
        """At most `limit` conversations in one of these states that no server runs: who waited first, then by age."""
        names = {f"state_{number}": state for number, state in enumerate(sorted(states))}
        wanted = ", ".join(f":{name}" for name in names)
        rows = await self._engines.fetch(
            f"SELECT id FROM conversations c WHERE agent_state IN ({wanted}) AND NOT EXISTS ("  # noqa: S608 - our own names
            "   SELECT 1 FROM leases l JOIN servers s ON s.id = l.owner"
            f"  WHERE l.conversation_id = c.id AND s.expires_at > {self._now}"
            " ) ORDER BY coalesce(waiting_number, 0), created_at, id LIMIT :limit",
            limit=limit,
            **names,
        )
        return [row[0] for row in rows]

    def _sql(self, statement: str) -> TextClause:
        for word, meaning in self._words.items():
            statement = statement.replace(word, meaning)
        return text(statement)


def _read(live: object) -> Mapping[str, Any] | None:
    if isinstance(live, str):
        live = json.loads(live)
    return live if isinstance(live, Mapping) else None
