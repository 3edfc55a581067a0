"""`RunQueue`: which conversations may be at work and have their sandbox up, and in which order the others follow."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import math
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, MutableMapping, Sequence
from contextlib import suppress
from typing import Final

from agent_core.errors import DrydockError
from agent_core.events.transient import TOO_MANY_CONVERSATIONS, WAITING_FOR_TURN
from agent_core.spans import Span
from agent_core.troubles import Trouble, coded
from server.db.repositories.conversations import ConversationRepository
from server.db.repositories.turns import SharedTurn
from server.metrics import ServerMetrics
from server.session.capacity import Capacity
from server.session.tickets import Elsewhere, QueuePlace, Ticket, WaitingTicket

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
"""After so long without news it is looked again whether a condition still holds."""
TELL_SECONDS: Final = 0.2
"""Those who wait are told their place at most so often."""

_ORDINALS: Final = ("First", "Second", "Third", "Fourth", "Fifth", "Sixth", "Seventh", "Eighth", "Ninth", "Tenth")


CLOSED: Final = "the server ends, or begins"
LOST: Final = "the conversation was stopped while it waited for its turn"


class PlaceLostError(DrydockError):
    """The conversation was stopped or removed while it waited for its turn."""


class RunQueue:
    """Hands out turns and sandboxes' places: first come, first served, and in turns among users.

    Whoever works keeps its turn until it rests. Nobody is stopped for another; what rests may lose its sandbox for one
    that works (`free_sandbox`, which tells whether it has freed one). `others` are conversations whose sandboxes are up
    without a place here; who gets one is removed. Each of `conditions` says why nothing may begin now, or "".
    `sandboxes` is how many may be up at the moment, where that changes.
    `on_turn` is told what became of a place in the queue: a `QueuePlace`, or None when its turn has come. `run` is its
    owner's task.

    Several servers `share` one: each has its own conversations in it, knows what those of the others have and wait for
    (`see`), and lets in whom it has chosen (`settle`) when that is stored (`let_in`).
    """

    def __init__(
        self,
        capacity: Capacity,
        conversations: ConversationRepository,
        *,
        conditions: Sequence[Callable[[], str]] = (),
        sandboxes: Callable[[], int | None] = lambda: None,
        others: MutableMapping[str, float],
        free_sandbox: Callable[[bool], Awaitable[bool]],
        on_turn: Callable[[str, QueuePlace | None], None],
        metrics: ServerMetrics,
    ) -> None:
        self.capacity = capacity
        self._conversations = conversations
        self._conditions = conditions
        self._most = sandboxes
        self._others = others
        self._free_sandbox = free_sandbox
        self._on_turn = on_turn
        self._metrics = metrics
        self._tickets: dict[str, Ticket] = {}
        self._queue: dict[Ticket, WaitingTicket] = {}
        self._shown: tuple[float, dict[Ticket, QueuePlace]] | None = None
        """The places of all, since when; None where somebody has come, gone or passed another since."""
        self._up = 0
        self._working = Counter[str]()
        self._served = Counter[str]()
        """When each user who has something here was last served: the number of that turn."""
        self._turn = 0
        self._numbers: Iterator[int] = itertools.count(1)
        self._news = asyncio.Event()
        self._is_closed = False
        self._rested_at = -math.inf
        self._settle_soon: Callable[[], None] | None = None
        self._ask_for_room: Callable[[str, bool], None] = lambda server, to_work: None
        self._elsewhere = Elsewhere()
        self._chosen: list[tuple[WaitingTicket, SharedTurn, SharedTurn, Elsewhere]] = []
        self._lacking = ""
        """The conversation here that lacked nothing but a sandbox when it was settled last."""
        metrics.gauge("drydock_working", lambda: self._working.total())
        metrics.gauge("drydock_waiting", lambda: len(self._queue))
        metrics.gauge("drydock_sandboxes", self._sandboxes)

    # --- for conversations ---

    def ticket(self, conversation_id: str, user_id: str) -> Ticket:
        """The conversation's ticket, made when it is first asked for; `leave` is its end."""
        if conversation_id not in self._tickets:
            self._tickets[conversation_id] = Ticket(conversation_id, user_id)
        return self._tickets[conversation_id]

    async def enter(self, ticket: Ticket, *, to_work: bool, after: int = -1, number: int | None = None) -> None:
        """Wait until it has its sandbox's place and, `to_work`, its turn; at once where there is room and nobody waits.

        `after` is the newest event of its log now, `number` the place that it had before the server's last end. A
        cancelled wait leaves the queue, unless somebody else waits for the same. Raises `PlaceLostError` where `leave`
        ends it.
        """
        if ticket.is_void:
            raise PlaceLostError(LOST)
        if ticket.has_sandbox and (ticket.works or not to_work):
            ticket.taken_at = max(ticket.taken_at, after)
            return
        with Span("queue_wait", wanted="turn" if to_work else "sandbox"):
            await self._admitted(self._lined_up(ticket, to_work=to_work, number=number), kept=number is not None)
        ticket.taken_at = max(ticket.taken_at, after)

    async def _admitted(self, waiting: WaitingTicket, *, kept: bool) -> None:
        ticket = waiting.ticket
        waiting.waiters += 1
        try:
            if not waiting.admitted.done():
                self._news.set()
                if not kept:  # else it is stored, or will be if it has to wait
                    await self._keep_place(waiting)
            await asyncio.shield(waiting.admitted)
        except asyncio.CancelledError:
            if waiting.admitted.cancelled():
                raise PlaceLostError(LOST) from None
            if waiting.waiters == 1:
                self._give_up(waiting)
                if waiting.told is not None:
                    self._on_turn(ticket.conversation_id, None)
            raise
        finally:
            waiting.waiters -= 1

    def _lined_up(self, ticket: Ticket, *, to_work: bool, number: int | None) -> WaitingTicket:
        waiting = self._queue.get(ticket)
        if waiting is None:
            waiting = WaitingTicket(ticket, next(self._numbers) if number is None else number, to_work=to_work)
            waiting.is_kept = bool(number)  # written down before the server's last end; from 1 on
            self._queue[ticket] = waiting
        elif to_work and (not waiting.to_work or (number is not None and number < waiting.number)):
            waiting.to_work, waiting.number = True, next(self._numbers) if number is None else number
            waiting.is_kept = number is not None
            if number is not None:
                self._conversations.touch(ticket.conversation_id, waiting_number=number)
        self._shown = None
        # Who waits already lacked something when it was last looked, and nothing has been freed since.
        if not self._lack(waiting):
            self._admit()
        return waiting

    async def hurry(self, ticket: Ticket) -> None:
        """What waits only for its sandbox has got work."""
        if self.is_waiting(ticket, to_work=False):
            waiting = self._lined_up(ticket, to_work=True, number=None)
            self._news.set()
            if not waiting.admitted.done():
                await self._keep_place(waiting)

    def calm(self, ticket: Ticket) -> bool:
        """What waits for its turn has no work any more, and waits only for its sandbox; False: it does not wait."""
        waiting = self._queue.get(ticket)
        if waiting is None or not waiting.to_work:
            return False
        waiting.to_work, self._shown = False, None
        self._conversations.touch(ticket.conversation_id, waiting_number=None)
        self._news.set()
        return True

    def rest(self, ticket: Ticket, at: float = math.inf) -> None:
        """It works no more, since its event `at`; nothing where it has taken another turn since."""
        if ticket.works and at > ticket.taken_at:
            self._end_work(ticket)
            self._freed()

    def leave(self, ticket: Ticket) -> None:
        """It is not loaded any more, and its sandbox is down or in somebody else's count."""
        if (waiting := self._queue.get(ticket)) is not None:
            waiting.admitted.cancel()
            self._give_up(waiting)
        self._end_work(ticket)
        self._up -= ticket.has_sandbox
        ticket.has_sandbox, ticket.is_void = False, True
        if self._tickets.get(ticket.conversation_id) is ticket:
            del self._tickets[ticket.conversation_id]
        self._freed()

    def forget(self, conversation_id: str) -> None:
        """Take its ticket from one that is not loaded: it is taken up no more."""
        if (ticket := self._tickets.get(conversation_id)) is not None:
            self.leave(ticket)

    def forget_all(self) -> None:
        for ticket in list(self._tickets.values()):
            self.leave(ticket)

    def _give_up(self, waiting: WaitingTicket) -> None:
        self._forget(waiting)
        if waiting.is_kept and not self._is_closed:
            self._conversations.touch(waiting.ticket.conversation_id, waiting_number=None)

    def _freed(self) -> None:
        self._rested_at, self._shown = time.monotonic(), None
        self._admit()
        self._news.set()

    # --- facts ---

    def place(self, conversation_id: str) -> QueuePlace | None:
        """The place in the queue of a conversation that waits, at this moment; None where it does not.

        Nobody has one before `open`: those who waited when the last server ended may not be there yet.
        """
        ticket = self._tickets.get(conversation_id)
        if ticket is None or ticket not in self._queue or self._is_closed:
            return None
        return self._all_places()[ticket]

    @property
    def is_open(self) -> bool:
        return not self._is_closed

    @property
    def problem(self) -> str:
        """Why nobody is let in now, whatever there is room for; "" otherwise."""
        return CLOSED if self._is_closed else self._problem()

    def has_sandbox(self, conversation_id: str) -> bool:
        ticket = self._tickets.get(conversation_id)
        return ticket is not None and ticket.has_sandbox

    def user_of(self, conversation_id: str) -> str:
        """Whose it is, if it has a ticket; else ""."""
        ticket = self._tickets.get(conversation_id)
        return ticket.user_id if ticket is not None else ""

    def knows(self, conversation_id: str) -> bool:
        """Whether it has a ticket: it is loaded, or about to be."""
        return conversation_id in self._tickets

    def is_coming_up(self, conversation_id: str) -> bool:
        """Whether it has its sandbox's place, or waits for that."""
        ticket = self._tickets.get(conversation_id)
        return ticket is not None and (ticket.has_sandbox or ticket in self._queue)

    def room(self) -> int:
        """How many sandboxes may be up beside those that are; 0 while anybody waits."""
        return 0 if self._queue or self._is_closed else max(0, self._most_sandboxes - self._sandboxes())

    @property
    def _most_sandboxes(self) -> int:
        most = self._most()
        return self.capacity.sandboxes if most is None else most

    def is_waiting(self, ticket: Ticket, *, to_work: bool) -> bool:
        waiting = self._queue.get(ticket)
        return waiting is not None and waiting.to_work is to_work

    # --- shared with other servers ---

    def share(
        self, settle_soon: Callable[[], None], ask_for_room: Callable[[str, bool], None], numbers: Iterator[int]
    ) -> None:
        """Have part of one queue from now on, in which places have these `numbers`.

        `settle_soon` is called when it is to be settled with the others who may begin, and `ask_for_room` with the name
        of one that could stop the sandbox of a conversation at rest, for one that has work, or for a look.
        """
        self._settle_soon, self._ask_for_room, self._numbers = settle_soon, ask_for_room, numbers

    @property
    def waits(self) -> bool:
        return bool(self._queue)

    @property
    def others_wait(self) -> bool:
        return bool(self._elsewhere.waiting)

    def turns(self) -> dict[str, SharedTurn]:
        """What the conversations here have and wait for, for the other servers; who cannot begin now does not wait."""
        found = {one: SharedTurn(one, has_sandbox=True) for one in self._others}
        may_begin, told = not self.problem, set[str]()
        for ticket in self._tickets.values():
            waiting = self._queue.get(ticket) if may_begin else None
            is_up = ticket.has_sandbox or ticket.conversation_id in self._others
            if waiting is not None or is_up:
                number = None if waiting is None else waiting.number
                to_work = waiting is not None and waiting.to_work
                user = ticket.user_id
                served = 0 if user in told else self._served[user]  # once, or each turn would change all rows
                told.add(user)
                turn = SharedTurn(ticket.conversation_id, user, is_up, ticket.works, number, to_work, served)
                found[ticket.conversation_id] = turn
        return found

    def see(self, others: Collection[SharedTurn]) -> None:
        """Know what those of the other servers have, and wait for."""
        self._elsewhere, self._shown = Elsewhere(others), None
        for user, turn in self._elsewhere.served.items():
            self._turn = max(self._turn, turn)
            self._served[user] = max(self._served[user], turn)

    def settle(self, others: Collection[SharedTurn]) -> dict[str, SharedTurn]:
        """Choose who is let in here, while no other server does that; what they have then is to be stored."""
        self.see(others)
        elsewhere, turn = self._elsewhere, self._turn
        self._chosen = []
        for waiting in self._admissible():
            ticket, begins = waiting.ticket, waiting.to_work and not waiting.ticket.works
            is_new = not (ticket.has_sandbox or ticket.conversation_id in self._others)
            gets = SharedTurn(ticket.conversation_id, ticket.user_id, is_new, begins)
            elsewhere.add(gets)
            if elsewhere.waiting.pop(ticket, None) is None:  # else another server lets it in, and has its room kept
                turn += begins
                has = gets._replace(has_sandbox=True, works=ticket.works or begins, served=turn if begins else 0)
                self._chosen.append((waiting, gets, has, elsewhere))
        return {has.conversation_id: has for _, _, has, _ in self._chosen}

    def let_in(self) -> None:
        """Let in who was chosen, as far as they still want that and no more."""
        chosen, self._chosen = self._chosen, []
        for waiting, gets, has, elsewhere in chosen:
            elsewhere.add(gets, -1)
            if self._queue.get(waiting.ticket) is waiting and (has.works or not waiting.to_work):
                self._let_in(waiting)
        first = self._first_without_sandbox()
        lacking = "" if first is None or first.ticket not in self._queue else first.ticket.conversation_id
        if lacking not in ("", self._lacking):
            self._news.set()  # for whom room is to be made at once, and not only when it is looked next
        self._lacking = lacking

    async def free_for_others(self, *, to_work: bool) -> None:
        """Stop the sandbox of a conversation that rests here: one of another server needs its place."""
        await self._free_sandbox(to_work)

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
        """Free sandboxes as long as somebody lacks nothing else, and let in whoever may."""
        self._admit()
        while (first := self._first_without_sandbox()) is not None:
            if first.ticket not in self._queue:
                return  # it waits at another server, which sees to that
            try:
                if not await self._free_sandbox(first.to_work):
                    if self._elsewhere.resting:
                        self._ask_for_room(random.choice(self._elsewhere.resting), first.to_work)  # noqa: S311 - no secret
                    return
            except DrydockError as error:
                logger.warning("no sandbox could be freed for now: %s", error)
                return
            except Exception:
                where = first.ticket.conversation_id
                extra = coded(Trouble.UNEXPECTED, where)
                logger.exception("no sandbox could be freed for conversation %s", where, extra=extra)
                return
            self._admit()

    def close(self) -> None:
        """Let nobody in: the server ends, and who waits keeps its place; or it begins, and not all have theirs yet."""
        self._is_closed = True

    def open(self) -> None:
        """Let in whoever may: those who waited when the last server ended are in the queue again."""
        self._is_closed, self._shown = False, None
        self._admit()
        self._news.set()

    async def begin_after(self, number: int) -> None:
        """Give places behind this one, that of the last who waited when the server ended; also to who came already."""
        if self._settle_soon is not None:
            return  # numbers are moments then
        self._numbers = itertools.count(number + 1)
        already = sorted(self._queue.values(), key=lambda one: one.number)
        for waiting in already:
            waiting.number = next(self._numbers)
        for waiting in already:
            if self._queue.get(waiting.ticket) is waiting:
                await self._keep_place(waiting)

    # --- the queue ---

    def _admit(self) -> None:
        """Let in whoever may, in their order; where it is shared, soon."""
        if self._settle_soon is not None:
            self._settle_soon()
            return
        for waiting in self._admissible():
            self._let_in(waiting)

    def _admissible(self) -> Iterator[WaitingTicket]:
        """Those who may be let in, in their order; each is to be let in, or counted, before the next is asked for.

        Who lacks only a sandbox keeps its turn for as long as one may be freed: otherwise those that have theirs still,
        from before, would go first each time.
        """
        if not self._queue or self.problem:
            return
        promised, may_be_freed = 0, time.monotonic() < self._rested_at + LOOK_SECONDS
        for waiting in list(self._in_order()):
            if promised and waiting.to_work and self._at_work() + promised >= self.capacity.working:
                continue
            lack = self._lack(waiting)
            if not lack:
                yield waiting
            elif lack == "sandboxes" and waiting.to_work and may_be_freed:
                promised += 1

    def _let_in(self, waiting: WaitingTicket) -> None:
        self._forget(waiting)
        ticket = waiting.ticket
        self._up += not ticket.has_sandbox
        ticket.has_sandbox = True
        self._others.pop(ticket.conversation_id, None)
        if waiting.to_work and not ticket.works:
            ticket.works = True
            self._working[ticket.user_id] += 1
            self._turn += 1
            self._served[ticket.user_id] = self._turn
        if not waiting.admitted.done():
            waiting.admitted.set_result(None)
        if waiting.is_kept:
            self._conversations.touch(ticket.conversation_id, waiting_number=None)
        if waiting.told is not None:
            self._on_turn(ticket.conversation_id, None)

    def _lack(self, waiting: WaitingTicket) -> str:
        """The limit that it has to wait for: "user", "working" or "sandboxes"; "" when it may begin."""
        if waiting.to_work:
            is_at_own_limit = self._at_work_of(waiting.ticket.user_id) >= self.capacity.per_user
            if is_at_own_limit and self.capacity.per_user < self.capacity.working:
                return "user"  # first: whoever else rests, it has to wait for one of its own
            if self._at_work() >= self.capacity.working:
                return "working"
        is_up = waiting.ticket.has_sandbox or waiting.ticket.conversation_id in self._others
        has_room = self._sandboxes() + self._elsewhere.sandboxes < self._most_sandboxes
        return "" if is_up or has_room else "sandboxes"

    def _at_work(self) -> int:
        return self._working.total() + self._elsewhere.working.total()

    def _at_work_of(self, user: str) -> int:
        return self._working[user] + self._elsewhere.working[user]

    def _in_order(self) -> Iterator[WaitingTicket]:
        """All who wait, as they would be let in one after the other, whatever the limits.

        Work goes before a mere look. The user with the least at work is next, of several the one who was served longest
        ago; of one user's, who came first.
        """
        for to_work in (True, False):
            of_users: dict[str, list[WaitingTicket]] = {}
            waiting = itertools.chain(self._queue.values(), self._elsewhere.waiting.values())
            for one in sorted(waiting, key=lambda one: one.number):
                if one.to_work is to_work:
                    of_users.setdefault(one.ticket.user_id, []).append(one)
            heap = [
                (self._at_work_of(user), self._served_at(user, theirs), theirs[0].number, user, 0)
                for user, theirs in of_users.items()
            ]
            heapq.heapify(heap)
            for turn in itertools.count(self._turn + 1):
                if not heap:
                    break
                working, _, _, user, index = heapq.heappop(heap)
                theirs = of_users[user]
                yield theirs[index]
                if index + 1 < len(theirs):
                    heapq.heappush(heap, (working + 1, turn, theirs[index + 1].number, user, index + 1))

    def _served_at(self, user: str, waiting: Sequence[WaitingTicket]) -> int:
        """When it was served, as far as all servers know: they have to agree who is next."""
        is_told = self._settle_soon is None or any(one.ticket in self._queue for one in waiting)
        return self._served[user] if is_told else self._elsewhere.served.get(user, 0)

    def _first_without_sandbox(self) -> WaitingTicket | None:
        if not self._queue or self.problem:
            return None
        return next((one for one in self._in_order() if self._lack(one) == "sandboxes"), None)

    def _all_places(self) -> dict[Ticket, QueuePlace]:
        now = time.monotonic()
        if self._shown is None or now > self._shown[0] + TELL_SECONDS:  # a condition may have come or gone
            self._shown = now, {one.ticket: place for one, place in self._places() if one.ticket in self._queue}
        return self._shown[1]

    def _places(self) -> Iterator[tuple[WaitingTicket, QueuePlace]]:
        """Everybody's place: among all, or among its user's own where that one's limit is what it waits for."""
        problem, position, of_users = self._problem(), 0, Counter[str]()
        for waiting in self._in_order():
            user = waiting.ticket.user_id
            of_users[user] += 1
            lack = self._lack(waiting)
            if lack == "user" and not problem:
                text = f"{in_line(of_users[user])}: {self._why(lack)}"
                yield waiting, QueuePlace(of_users[user], TOO_MANY_CONVERSATIONS, text)
                continue
            position += 1
            text = f"{in_line(position)}: {problem or self._why(lack)}"
            yield waiting, QueuePlace(position, WAITING_FOR_TURN, text)

    def _why(self, lack: str) -> str:
        match lack:
            case "user":
                most = self.capacity.per_user
                which = f"{most} of your conversations {'are' if most > 1 else 'is'} at work"
                return f"{which}, as many as may be at a time."
            case "working":
                most = self.capacity.working
                which = f"{most} agents are at work" if most > 1 else "1 agent is at work"
            case "sandboxes":
                most = self._most_sandboxes
                which = f"{most} sandboxes are up" if most > 1 else "1 sandbox is up"
            case _:
                return "its turn comes in a moment."
        whose = "this server has" if self._settle_soon is None else "these servers have"
        return f"{which}, as many as {whose} room for."

    def _tell(self) -> None:
        if self._is_closed:
            return
        for ticket, turn in self._all_places().items():
            waiting = self._queue[ticket]
            if waiting.to_work and not waiting.is_kept:
                waiting.is_kept = True
                self._conversations.touch(waiting.ticket.conversation_id, waiting_number=waiting.number)
            if not _is_news(turn, waiting.told):
                continue
            if waiting.told is None and waiting.to_work:
                text = f"waits for its turn. {turn.text}"
                self._metrics.trouble(Trouble.WAITING, text, waiting.ticket.conversation_id, level=logging.INFO)
            waiting.told = turn
            self._on_turn(waiting.ticket.conversation_id, turn)

    async def _keep_place(self, waiting: WaitingTicket) -> None:
        """Write its place down, which counts after the server's next start."""
        if not waiting.to_work:
            return
        waiting.is_kept, where = True, waiting.ticket.conversation_id
        try:
            await self._conversations.update(where, waiting_number=waiting.number)
        except DrydockError as error:
            self._metrics.trouble(Trouble.OTHER, f"its place in the queue is not stored: {error}", where)

    def _forget(self, waiting: WaitingTicket) -> None:
        if self._queue.get(waiting.ticket) is waiting:
            del self._queue[waiting.ticket]
            self._shown = None

    def _end_work(self, ticket: Ticket) -> None:
        if ticket.works:
            ticket.works = False
            self._working[ticket.user_id] -= 1
            if not self._working[ticket.user_id]:
                del self._working[ticket.user_id]

    def _sandboxes(self) -> int:
        return self._up + len(self._others)

    def _problem(self) -> str:
        return next(filter(None, (condition() for condition in self._conditions)), "")


def _is_news(place: QueuePlace, told: QueuePlace | None) -> bool:
    """Whether it has to be told: who is far behind hears of each tenth of its way, or a thousand who wait drown."""
    if told is None or place.status != told.status or place.position <= len(_ORDINALS):
        return place != told
    return abs(place.position - told.position) * 10 >= told.position


def in_line(position: int) -> str:
    """How people say it: ``Third in line``."""
    return f"{_ORDINALS[position - 1] if position <= len(_ORDINALS) else f'Number {position}'} in line"
