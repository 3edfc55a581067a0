"""`Ticket`: what one conversation has of what the queue hands out, and what it waits for."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from agent_core.events.transient import TOO_MANY_CONVERSATIONS, StatusNotice
from server.db.repositories.turns import SharedTurn


class QueuePlace(NamedTuple):
    """A place in the queue: `position` 1 is next. `status` is its status id, `text` says it for people."""

    position: int
    status: str
    text: str

    @property
    def notice(self) -> StatusNotice:
        # The protocol's own id is an error's, which is what its clients show.
        return StatusNotice(self.status, self.text, "error" if self.status == TOO_MANY_CONVERSATIONS else "info")


class Ticket:
    """What one conversation of `user_id` holds: its sandbox's place (`has_sandbox`), and its turn while it `works`."""

    def __init__(self, conversation_id: str, user_id: str) -> None:
        self.conversation_id = conversation_id
        self.user_id = user_id
        self.has_sandbox = False
        self.works = False
        self.taken_at = -1
        """The newest event of its log when the turn was last taken: what the agent did before is of an earlier one."""
        self.is_void = False
        """It was given back: whoever still has it has come too late."""

    def __repr__(self) -> str:
        return f"Ticket({self.conversation_id!r}, has_sandbox={self.has_sandbox}, works={self.works})"


class WaitingTicket:
    """A ticket in the queue."""

    def __init__(self, ticket: Ticket, number: int, *, to_work: bool) -> None:
        self.ticket = ticket
        self.number = number
        self.to_work = to_work
        self.admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiters = 0
        self.told: QueuePlace | None = None
        self.is_kept = False


class Elsewhere:
    """What conversations at the other servers of a database have, and who waits there."""

    def __init__(self, turns: Collection[SharedTurn] = ()) -> None:
        self.working = Counter(turn.user_id for turn in turns if turn.works)
        self.sandboxes = sum(turn.has_sandbox for turn in turns)
        self.served = dict[str, int]()
        self.resting = [turn.server for turn in turns if turn.has_sandbox and not turn.works and turn.number is None]
        self.waiting = dict[Ticket, WaitingTicket]()
        for turn in turns:
            self.served[turn.user_id] = max(turn.served, self.served.get(turn.user_id, 0))
            if turn.number is not None:
                ticket = Ticket(turn.conversation_id, turn.user_id)
                ticket.has_sandbox, ticket.works = turn.has_sandbox, turn.works
                self.waiting[ticket] = WaitingTicket(ticket, turn.number, to_work=turn.to_work)

    def add(self, turn: SharedTurn, times: int = 1) -> None:
        """Count what it is about to get, or, `times` -1, has got."""
        self.working[turn.user_id] += times * turn.works
        self.sandboxes += times * turn.has_sandbox
