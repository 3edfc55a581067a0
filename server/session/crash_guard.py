"""`CrashGuard`: a conversation that ends the server each time it is taken up does not stop the others."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from agent_core.errors import DrydockError
from agent_core.events.control import AgentState, AgentStateChanged
from agent_core.events.serialization import AnyEvent, from_payload
from agent_core.events.transient import HELD_BACK as HELD_BACK
from agent_core.troubles import Trouble, coded
from server.db.event_store import SqlEventStore
from server.db.repositories.conversations import ConversationRecord, ConversationRepository
from server.metrics import ServerMetrics
from server.session.recorder import BUSY_STATES, is_step

logger = logging.getLogger(__name__)

LIFE: Final = "life"
"""Key among a conversation's options: the `Life` that its agent, at work, has had since the server's start."""

FRUITLESS_LIVES: Final = 3
"""So many lives in a row without a step, and it is held back."""
WAITING_LIVES: Final = 10
"""The same for lives in which a command of an earlier one was still running, which is reason enough for no step."""
TRIAL_SECONDS: Final = 10.0
"""So long the next suspect waits for the one before it, which may end the server meanwhile, or make a step."""
ALL_TRIALS_SECONDS: Final = 60.0
"""So long the last of them waits in all: they keep their turns to work meanwhile, and others wait behind them."""
MAX_RETRY_SECONDS: Final = 86_400.0
AGAIN_SECONDS: Final = 60.0
"""After so long it is tried again to take one up that could not even be loaded."""
TAIL: Final = 100

SENTENCE: Final = (
    "This conversation was at work each of the last times that the server ended without warning, and its agent did"
    " nothing in between: it may be what ends the server. So it is held back. It is taken up again, alone, once the"
    " server has been up for a while; to go on at once, send a message or start it."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """What is known of the present life of a conversation's agent, and of those before it that came to nothing.

    `fruitless` counts the lives before it without a step and without an orderly end, `waiting` those in which a command
    was found running. `since` has the newest event of each of its logs from when it began. `found_running` says that a
    command is running from an earlier life, `under_way` that a life has begun, and that its end was not in order.
    """

    fruitless: int = 0
    waiting: int = 0
    since: Mapping[str, int] = field(default_factory=dict)
    found_running: bool = False
    under_way: bool = False

    @property
    def is_suspect(self) -> bool:
        return self.fruitless > 0 or self.waiting > 0

    @property
    def is_loop(self) -> bool:
        return self.fruitless >= FRUITLESS_LIVES or self.waiting >= WAITING_LIVES


class _HeldBack:
    def __init__(self, due: float) -> None:
        self.due = due
        self.released = asyncio.Event()


class CrashGuard:
    """Knows of each conversation that is at work how its last lives have ended, and when the next one may begin.

    One whose lives came to nothing is a suspect, and begins alone: the next suspect waits until it has made a step, has
    come to rest, or has had its time. So of several that were at work, only the one that ends the server is found to do
    so each time. That one is held back until its user wants it, or until the server has been up for `retry_seconds` (0:
    only its user), twice as long after each further failure. `tell` writes a sentence into a conversation; `take_up`
    loads one. `run` is its owner's task.
    """

    def __init__(
        self,
        conversations: ConversationRepository,
        events: SqlEventStore,
        *,
        retry_seconds: float,
        tell: Callable[[str, list[AnyEvent]], Awaitable[None]],
        take_up: Callable[[str], Awaitable[object]],
        metrics: ServerMetrics,
    ) -> None:
        self._conversations = conversations
        self._events = events
        self._retry_seconds = retry_seconds
        self._tell = tell
        self._take_up = take_up
        self._metrics = metrics
        self._judged: dict[str, asyncio.Task[Life]] = {}
        self._lives: dict[str, Life] = {}
        self._held: dict[str, _HeldBack] = {}
        self._began = time.monotonic()
        self._one_at_a_time = asyncio.Lock()
        self._on_trial, self._verdict = "", asyncio.Event()
        self._suspects, self._trial_seconds = 0, TRIAL_SECONDS
        self._waiting_for_commands: set[str] = set()
        self._news = asyncio.Event()
        metrics.gauge("drydock_held_back", lambda: len(self._held))

    # --- the beginning of a life ---

    async def holds_back(self, record: ConversationRecord) -> bool:
        """Whether it must not be taken up now; decided once for each start of the server."""
        if record.agent_state in _BUSY and record.id not in self._lives:
            if record.id not in self._judged:
                judging = self._hold_or_let_go(record)
                self._judged[record.id] = asyncio.create_task(judging, name=f"judge:{record.id}")
            try:
                await asyncio.shield(self._judged[record.id])
            except DrydockError:
                self._judged.pop(record.id, None)
                raise
        return record.id in self._held

    def failures(self, conversation_id: str) -> int:
        """How many of its last lives came to nothing, as far as it was judged."""
        judged = self._judged.get(conversation_id)
        if judged is None or not judged.done() or judged.cancelled() or judged.exception() is not None:
            return 0
        return judged.result().fruitless + judged.result().waiting

    async def admit(self, record: ConversationRecord) -> None:
        """Wait until a life of it may `begin`; at once where it was not at work before."""
        if record.agent_state not in _BUSY:
            return
        await self.until_released(record)
        judging = self._judged.get(record.id)
        if record.id in self._lives or judging is None:  # it has begun, or come to rest, meanwhile
            return
        life = await judging
        if life.is_suspect:
            await self._begin_trial(record.id, life)

    async def begin(self, conversation_id: str) -> None:
        """Write down that a life of it begins that was admitted; nothing where that was done, or needs not be."""
        if conversation_id in self._lives or (judging := self._judged.get(conversation_id)) is None:
            return
        life = self._lives[conversation_id] = await judging
        since = await self._events.last_ids(conversation_id)
        await self._write(conversation_id, replace(life, since=since, found_running=False, under_way=True))

    async def until_released(self, record: ConversationRecord) -> None:
        """Wait while it is held back."""
        if await self.holds_back(record):
            await self._held[record.id].released.wait()

    async def _hold_or_let_go(self, record: ConversationRecord) -> Life:
        stored = record.options.get(LIFE)
        life = await self._judgement(record, Life(**stored) if stored is not None else None)
        self._suspects += life.is_suspect and not life.is_loop
        if life.is_loop and self._judged.get(record.id) is asyncio.current_task():  # and not stopped meanwhile
            held = replace(life, since={}, under_way=False)
            failures = max(life.fruitless - FRUITLESS_LIVES, life.waiting - WAITING_LIVES, 0)
            pause = min(self._retry_seconds * 2**failures, MAX_RETRY_SECONDS)
            self._held[record.id] = _HeldBack(self._began + pause if self._retry_seconds else float("inf"))
            self._news.set()
            if stored is None or stored["under_way"]:
                await self._write(record.id, held)
                await self._tell(record.id, _told())
            self._metrics.trouble(Trouble.CRASH_LOOP, "held back: its last lives came to nothing", record.id)
        return life

    async def _judgement(self, record: ConversationRecord, life: Life | None) -> Life:
        """What is to be thought of it now that the life that is stored, if one is, has ended."""
        conversation_id = record.id
        if life is None:
            waited = record.waiting_number is not None  # for its turn: nothing of it has lived
            return Life(fruitless=int(not waited and await self._came_to_nothing(conversation_id)))
        if not life.under_way:
            return life
        for log, last in (await self._events.last_ids(conversation_id)).items():
            after = life.since.get(log, -1)
            if last > after and any(is_step(*one) for one in await self._events.kinds_after(log, after)):
                return Life()
        if life.found_running:
            return replace(life, waiting=life.waiting + 1)
        return replace(life, fruitless=life.fruitless + 1)

    async def _came_to_nothing(self, conversation_id: str) -> bool:
        """Whether its agent has made no step since it was loaded the last time; no life of it is stored."""
        last = await self._events.last_id(conversation_id)
        for stored in await self._events.read_before(conversation_id, before=last + 1, limit=TAIL):
            event = from_payload(stored.payload, stored.id, conversation_id)
            if is_step(event.kind, event.source):
                return False
            if isinstance(event, AgentStateChanged) and event.agent_state is AgentState.LOADING:
                return True
        return False

    async def _begin_trial(self, conversation_id: str, life: Life) -> None:
        async with self._one_at_a_time:
            await self._until_verdict()
            if conversation_id in self._judged and conversation_id not in self._lives:  # nobody's end was waited for
                self._on_trial, self._verdict = conversation_id, asyncio.Event()
                share = ALL_TRIALS_SECONDS / max(self._suspects, 1)
                self._trial_seconds = TRIAL_SECONDS if life.is_loop else min(TRIAL_SECONDS, share)

    async def _until_verdict(self) -> None:
        if self._on_trial:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._trial_seconds):
                    await self._verdict.wait()
            self._on_trial = ""

    # --- what becomes of it ---

    def made_step(self, conversation_id: str) -> None:
        """Its agent has made a step."""
        if conversation_id == self._on_trial:
            self._verdict.set()

    def found_running(self, conversation_id: str) -> None:
        """A command of an earlier life is still running, so it waits for that with reason."""
        if conversation_id in self._lives:
            self.made_step(conversation_id)
            self._waiting_for_commands.add(conversation_id)
            self._news.set()

    async def came_to_rest(self, conversation_id: str) -> None:
        """Its agent waits, or was stopped: nothing of its earlier lives counts any more."""
        if self.forget(conversation_id):
            await self._conversations.set_option(conversation_id, LIFE, None)

    def forget(self, conversation_id: str) -> bool:
        """Know nothing of it any more; returns whether anything was known."""
        self.release(conversation_id)
        self.made_step(conversation_id)
        has_lived = self._lives.pop(conversation_id, None) is not None
        return self._judged.pop(conversation_id, None) is not None or has_lived

    async def ended_in_order(self, conversation_id: str) -> None:
        """The server ends as it should while it is at work, which no conversation has caused."""
        if conversation_id not in self._held:
            await self._write(conversation_id, Life())

    # --- those held back ---

    def is_held(self, conversation_id: str) -> bool:
        return conversation_id in self._held

    def release(self, conversation_id: str) -> None:
        """Its user wants it: it goes on, as a suspect."""
        if (held := self._held.pop(conversation_id, None)) is not None:
            held.released.set()

    async def run(self) -> None:
        """Take up again, one after the other, what was held back, when its time has come; until cancelled."""
        while True:
            first = min(self._held, key=lambda one: self._held[one].due, default="")
            patience = max(0.0, self._held[first].due - time.monotonic()) if first else None
            with suppress(TimeoutError):
                async with asyncio.timeout(patience if patience != float("inf") else None):
                    await self._news.wait()
            self._news.clear()
            try:
                await self._note_running_commands()
                if first in self._held and self._held[first].due <= time.monotonic():
                    logger.info("conversation %s was held back and is taken up again, in its turn, alone", first)
                    self.release(first)
                    await self._take_up(first)
            except DrydockError as error:
                extra = coded(Trouble.NOT_RESUMED, first)
                logger.warning(
                    "conversation %s, which is held back, is not taken up now: %s", first, error, extra=extra
                )
                if first not in self._lives and self._judged.get(first) is not None:
                    self._held[first] = _HeldBack(time.monotonic() + AGAIN_SECONDS)

    async def _note_running_commands(self) -> None:
        while self._waiting_for_commands:
            conversation_id = self._waiting_for_commands.pop()
            if conversation_id in self._lives:
                record = await self._conversations.get(conversation_id)
                if record is not None and (stored := record.options.get(LIFE)) is not None:
                    await self._write(conversation_id, replace(Life(**stored), found_running=True))

    async def _write(self, conversation_id: str, life: Life) -> None:
        await self._conversations.set_option(conversation_id, LIFE, _data(life))


_BUSY: Final = frozenset(state.value for state in BUSY_STATES)


def _data(life: Life) -> dict[str, Any]:
    return {**asdict(life), "since": dict(life.since)}


def _told() -> list[AnyEvent]:
    return [AgentStateChanged(agent_state=AgentState.LOADING, reason=HELD_BACK, detail=SENTENCE)]
