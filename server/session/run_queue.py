"""`RunQueue`: which conversations may be at work and have their sandbox up, and in which order the others follow."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from agent_core.errors import DrydockError
from agent_core.events.transient import TOO_MANY_CONVERSATIONS, WAITING_FOR_TURN
from server.db.repositories.conversations import ConversationRepository
from server.metrics import ServerMetrics
from server.session.capacity import Capacity

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
"""After so long without news it is looked again whether a condition still holds."""
TELL_SECONDS: Final = 0.2
"""Those who wait are told their place at most so often."""

_ORDINALS: Final = ("First", "Second", "Third", "Fourth", "Fifth", "Sixth", "Seventh", "Eighth", "Ninth", "Tenth")


class QueuePlace(NamedTuple):
    """A place in the queue: `position` 1 is next. `status` is its status id, `text` says it for people."""

    position: int
    status: str
    text: str


class Ticket:
    """What one conversation of `user_id` holds: its sandbox's place (`has_sandbox`), and its turn while it `works`."""

    def __init__(self, conversation_id: str, user_id: str) -> None:
        self.conversation_id = conversation_id
        self.user_id = user_id
        self.has_sandbox = False
        self.works = False
        self.taken_at = -1
        """The newest event of its log when the turn was last taken: what the agent did before is of an earlier one."""

    def __repr__(self) -> str:
        return f"Ticket({self.conversation_id!r}, has_sandbox={self.has_sandbox}, works={self.works})"


class _Waiting:
    """A ticket in the queue."""

    def __init__(self, ticket: Ticket, number: int, *, to_work: bool) -> None:
        self.ticket = ticket
        self.number = number
        self.to_work = to_work
        self.admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.told: QueuePlace | None = None
        self.is_kept = False


class PlaceLostError(DrydockError):
    """The conversation was stopped or removed while it waited for its turn."""


class RunQueue:
    """Hands out turns and sandboxes' places: first come, first served, and in turns among users.

    Whoever works keeps its turn until it rests. Nobody is stopped for another; what rests may lose its sandbox for one
    that works (`free_sandbox`, which tells whether it has freed one). `others` counts the sandboxes that are up without
    a ticket; each of `conditions` says why nothing may begin now, or "". `on_turn` is told what became of a place in
    the queue: a `QueuePlace`, or None when its turn has come. `run` is its owner's task.
    """

    def __init__(
        self,
        capacity: Capacity,
        conversations: ConversationRepository,
        *,
        conditions: Sequence[Callable[[], str]] = (),
        others: Callable[[], int],
        free_sandbox: Callable[[bool], Awaitable[bool]],
        on_turn: Callable[[str, QueuePlace | None], None],
        metrics: ServerMetrics,
    ) -> None:
        self.capacity = capacity
        self._conversations = conversations
        self._conditions = conditions
        self._others = others
        self._free_sandbox = free_sandbox
        self._on_turn = on_turn
        self._metrics = metrics
        self._tickets: dict[str, Ticket] = {}
        self._queue: dict[Ticket, _Waiting] = {}
        self._up = 0
        self._working = Counter[str]()
        self._served = Counter[str]()
        """When each user who has something here was last served: the number of that turn."""
        self._turns = itertools.count(1)
        self._numbers = itertools.count(1)
        self._news = asyncio.Event()
        self._is_closed = False
        metrics.gauge("drydock_working", "Conversations at work", lambda: self._working.total())
        metrics.gauge("drydock_waiting", "Conversations that wait for their turn", lambda: len(self._queue))
        metrics.gauge("drydock_sandboxes", "Sandboxes that are up, or coming up", self._sandboxes)

    # --- for conversations ---

    def ticket(self, conversation_id: str, user_id: str) -> Ticket:
        """The conversation's ticket, made when it is first asked for; `leave` is its end."""
        if conversation_id not in self._tickets:
            self._tickets[conversation_id] = Ticket(conversation_id, user_id)
        return self._tickets[conversation_id]

    async def enter(self, ticket: Ticket, *, to_work: bool, after: int = -1, number: int | None = None) -> None:
        """Wait until it has its sandbox's place and, `to_work`, its turn; at once where there is room and nobody waits.

        `after` is the newest event of its log now, `number` the place that it had before the server's last end. A
        cancelled wait leaves the queue. Raises `PlaceLostError` where `leave` ends it.
        """
        if ticket.has_sandbox and (ticket.works or not to_work):
            ticket.taken_at = max(ticket.taken_at, after)
            return
        waiting = self._queue.get(ticket)
        if waiting is None:
            waiting = _Waiting(ticket, next(self._numbers) if number is None else number, to_work=to_work)
            waiting.is_kept = bool(number)  # written down before the server's last end; from 1 on
            self._queue[ticket] = waiting
            # Who waits already lacked something when it was last looked, and nothing has been freed since.
            if not (self._is_closed or self._lack(waiting) or self._problem()):
                self._let_in(waiting)
        elif to_work:
            self.hurry(ticket)
        try:
            if not waiting.admitted.done():
                self._news.set()
                await self._keep_place(waiting)
            await asyncio.shield(waiting.admitted)
        except asyncio.CancelledError:
            self._forget(waiting)
            if waiting.told is not None:
                self._on_turn(ticket.conversation_id, None)
            if waiting.admitted.cancelled():
                raise PlaceLostError("the conversation was stopped while it waited for its turn") from None
            raise
        ticket.taken_at = max(ticket.taken_at, after)

    def hurry(self, ticket: Ticket) -> None:
        """What waits only for its sandbox has got work."""
        waiting = self._queue.get(ticket)
        if waiting is not None and not waiting.to_work:
            waiting.to_work, waiting.number = True, next(self._numbers)
            self._admit()
            self._news.set()

    def calm(self, ticket: Ticket) -> bool:
        """What waits for its turn has no work any more, and waits only for its sandbox; False: it does not wait."""
        waiting = self._queue.get(ticket)
        if waiting is None or not waiting.to_work:
            return False
        waiting.to_work = False
        self._conversations.touch(ticket.conversation_id, waiting_number=None)
        self._news.set()
        return True

    def rest(self, ticket: Ticket, at: float = math.inf) -> None:
        """It works no more, since its event `at`; nothing where it has taken another turn since."""
        if ticket.works and at > ticket.taken_at:
            self._end_work(ticket)
            self._admit()
            self._news.set()

    def leave(self, ticket: Ticket) -> None:
        """It is not loaded any more, and its sandbox is down or in somebody else's count."""
        if (waiting := self._queue.get(ticket)) is not None:
            self._forget(waiting)
            waiting.admitted.cancel()
            if waiting.is_kept and not self._is_closed:
                self._conversations.touch(ticket.conversation_id, waiting_number=None)
        self._end_work(ticket)
        self._up -= ticket.has_sandbox
        ticket.has_sandbox = False
        if self._tickets.get(ticket.conversation_id) is ticket:
            del self._tickets[ticket.conversation_id]
        self._admit()
        self._news.set()

    def forget(self, conversation_id: str) -> None:
        """Have it wait no more, if it does and is not loaded."""
        if (ticket := self._tickets.get(conversation_id)) is not None and not ticket.has_sandbox:
            self.leave(ticket)

    # --- facts ---

    def place(self, conversation_id: str) -> QueuePlace | None:
        """The place in the queue of a conversation that waits; None where it does not."""
        ticket = self._tickets.get(conversation_id)
        if ticket is None or ticket not in self._queue:
            return None
        waiting = self._queue[ticket]
        return waiting.told or next((turn for one, turn in self._places() if one is waiting), None)

    def is_waiting(self, ticket: Ticket, *, to_work: bool) -> bool:
        waiting = self._queue.get(ticket)
        return waiting is not None and waiting.to_work is to_work

    # --- the work of its owner ---

    async def run(self) -> None:
        """Make room for those who wait and tell them how far they have come, until cancelled."""
        pause, untold, told_at = TELL_SECONDS, False, -math.inf
        while True:
            patience = LOOK_SECONDS if self._queue else None
            if untold:
                patience = max(0.0, told_at + pause - time.monotonic())
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await self._news.wait()
            untold = untold or self._news.is_set() or bool(self._conditions)
            self._news.clear()
            await self._make_room()
            began = time.monotonic()
            if untold and began >= told_at + pause:
                self._tell()
                told_at, untold = time.monotonic(), False
                pause = max(TELL_SECONDS, 20 * (told_at - began))  # thousands who wait are told less often

    async def _make_room(self) -> None:
        self._admit()
        while (first := self._first_without_sandbox()) is not None:
            try:
                if not await self._free_sandbox(first.to_work):
                    return
            except Exception:
                logger.exception("no sandbox could be freed for conversation %s", first.ticket.conversation_id)
                return
            self._admit()

    def close(self) -> None:
        """Let nobody in any more: the server ends, and who waits keeps its place for the next one."""
        self._is_closed = True

    def begin_after(self, number: int) -> None:
        """Give places behind this one from now on: that of the last who waited when the server ended."""
        self._numbers = itertools.count(number + 1)

    # --- the queue ---

    def _admit(self) -> None:
        """Let in whoever may, in their order."""
        if not self._queue or self._is_closed or self._problem():
            return
        while (waiting := next((one for one in self._in_order() if not self._lack(one)), None)) is not None:
            self._let_in(waiting)

    def _let_in(self, waiting: _Waiting) -> None:
        self._forget(waiting)
        ticket = waiting.ticket
        self._up += not ticket.has_sandbox
        ticket.has_sandbox = True
        if waiting.to_work and not ticket.works:
            ticket.works = True
            self._working[ticket.user_id] += 1
            self._served[ticket.user_id] = next(self._turns)
        if not waiting.admitted.done():
            waiting.admitted.set_result(None)
        if waiting.is_kept:
            self._conversations.touch(ticket.conversation_id, waiting_number=None)
        if waiting.told is not None:
            self._on_turn(ticket.conversation_id, None)

    def _lack(self, waiting: _Waiting) -> str:
        """The limit that it has to wait for: "user", "working" or "sandboxes"; "" when it may begin."""
        if waiting.to_work:
            if self._working.total() >= self.capacity.working:
                return "working"
            if self._working[waiting.ticket.user_id] >= self.capacity.per_user:
                return "user"
        if not waiting.ticket.has_sandbox and self._sandboxes() >= self.capacity.sandboxes:
            return "sandboxes"
        return ""

    def _in_order(self) -> Iterator[_Waiting]:
        """All who wait, as they would be let in one after the other, whatever the limits.

        Work goes before a mere look. The user with the least at work is next, of several the one who was served longest
        ago; of one user's, who came first.
        """
        for to_work in (True, False):
            of_users: dict[str, list[_Waiting]] = {}
            for one in sorted(self._queue.values(), key=lambda one: one.number):
                if one.to_work is to_work:
                    of_users.setdefault(one.ticket.user_id, []).append(one)
            heap = [
                (self._working[user], self._served[user], theirs[0].number, user, 0)
                for user, theirs in of_users.items()
            ]
            heapq.heapify(heap)
            while heap:
                working, served, _, user, index = heapq.heappop(heap)
                theirs = of_users[user]
                yield theirs[index]
                if index + 1 < len(theirs):
                    heapq.heappush(heap, (working + 1, served, theirs[index + 1].number, user, index + 1))

    def _first_without_sandbox(self) -> _Waiting | None:
        if not self._queue or self._problem():
            return None
        return next((one for one in self._in_order() if self._lack(one) == "sandboxes"), None)

    def _places(self) -> Iterator[tuple[_Waiting, QueuePlace]]:
        problem, of_users = self._problem(), Counter[str]()
        for position, waiting in enumerate(self._in_order(), start=1):
            user = waiting.ticket.user_id
            of_users[user] += 1
            lack = self._lack(waiting)
            if problem:
                yield waiting, QueuePlace(position, WAITING_FOR_TURN, f"{in_line(position)}: {problem}")
            elif lack == "user":
                most = self.capacity.per_user
                text = (
                    f"{most} of your conversations {'are' if most > 1 else 'is'} at work, as many as may be at a time."
                )
                yield waiting, QueuePlace(of_users[user], TOO_MANY_CONVERSATIONS, f"{in_line(of_users[user])}: {text}")
            else:
                is_work = lack == "working"
                most = self.capacity.working if is_work else self.capacity.sandboxes
                what = ("agent" if is_work else "sandbox") if most == 1 else ("agents" if is_work else "sandboxes")
                how = f"{'is' if most == 1 else 'are'} {'at work' if is_work else 'up'}"
                text = f"{most} {what} {how}, as many as this server has room for."
                yield waiting, QueuePlace(position, WAITING_FOR_TURN, f"{in_line(position)}: {text}")

    def _tell(self) -> None:
        for waiting, turn in list(self._places()):
            if turn != waiting.told:
                if waiting.told is None and waiting.to_work:
                    text = f"waits for its turn. {turn.text}"
                    self._metrics.trouble("waiting", text, waiting.ticket.conversation_id, level=logging.INFO)
                waiting.told = turn
                self._on_turn(waiting.ticket.conversation_id, turn)

    async def _keep_place(self, waiting: _Waiting) -> None:
        """Write its place down, which counts after the server's next start."""
        if not waiting.to_work:
            return
        waiting.is_kept, where = True, waiting.ticket.conversation_id
        try:
            await self._conversations.update(where, waiting_number=waiting.number)
        except DrydockError as error:
            logger.warning("conversation %s: its place in the queue is not stored: %s", where, error)

    def _forget(self, waiting: _Waiting) -> None:
        if self._queue.get(waiting.ticket) is waiting:
            del self._queue[waiting.ticket]

    def _end_work(self, ticket: Ticket) -> None:
        if ticket.works:
            ticket.works = False
            self._working[ticket.user_id] -= 1
            if not self._working[ticket.user_id]:
                del self._working[ticket.user_id]

    def _sandboxes(self) -> int:
        return self._up + self._others()

    def _problem(self) -> str:
        return next(filter(None, (condition() for condition in self._conditions)), "")


def in_line(position: int) -> str:
    """How people say it: ``Third in line``."""
    return f"{_ORDINALS[position - 1] if position <= len(_ORDINALS) else f'Number {position}'} in line"
