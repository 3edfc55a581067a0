"""Turns: what the conversations of several servers hold of what there is for all of them, and which of them wait."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from sqlalchemy import text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from server.db.engine import Engines
from server.db.repositories.leases import NOW
from server.db.tables import leases
from server.db.writer import TableRepository, Writer

_ALONE: Final = "SELECT pg_try_advisory_xact_lock(7018413351422862)"
"""Who is given it alone hands out turns until its transaction ends; the number is Drydock's, by chance."""


class SharedTurn(NamedTuple):
    """What a conversation has or waits for, in the queue of several servers; `server` is the one that runs it."""

    conversation_id: str
    user_id: str = ""
    has_sandbox: bool = False
    works: bool = False
    number: int | None = None
    """Its place: who has a smaller one came before. None: it waits for nothing."""
    to_work: bool = False
    """Whether it waits for its turn; else for its sandbox alone."""
    served: int = 0
    """The number of the turn that its user got last, as far as is known; 0: see another one of that user."""
    server: str = ""


class TurnRepository(TableRepository):
    """Keeps `SharedTurn`s with the leases of their conversations: those of a server that is gone do not count."""

    def __init__(self, engines: Engines, writer: Writer) -> None:
        super().__init__(engines, writer)
        self._is_shared = engines.kind == "postgresql"
        self._of_others = (
            "SELECT l.conversation_id, l.owner, l.turn FROM leases l JOIN servers s ON s.id = l.owner"  # noqa: S608 - our own words
            f" WHERE l.turn IS NOT NULL AND l.owner <> :me AND s.expires_at > {NOW[engines.kind]}"
        )

    async def exchange(
        self, server_id: str, decide: Callable[[Sequence[SharedTurn]], Mapping[str, SharedTurn | None]]
    ) -> bool:
        """Have `decide` make of the turns of the others what is stored of its own; no other server does so meanwhile.

        It may be called more than once: the last time counts. False: another server is at it, and nothing was done.
        """

        async def apply(connection: AsyncConnection) -> bool:
            if self._is_shared and not (await connection.execute(text(_ALONE))).scalar_one():
                return False
            rows = (await connection.execute(text(self._of_others), {"me": server_id})).all()
            changes = decide([read_turn(log, owner, turn) for log, owner, turn in rows])
            for log, turn in changes.items():
                own = (leases.c.conversation_id == log) & (leases.c.owner == server_id)
                await connection.execute(
                    update(leases).where(own).values(turn=None if turn is None else list(turn[1:7]))
                )
            return True

        return await self._writer.change(apply)


def read_turn(conversation_id: str, server_id: str, stored: object) -> SharedTurn:
    """The turn that stands in a row of `leases`."""
    if isinstance(stored, str):
        stored = json.loads(stored)
    fields = stored if isinstance(stored, list) else ["", False, False, None, False, 0]
    return SharedTurn._make([conversation_id, *fields, server_id])
