"""`FailedStarts`: what could not be started is started again, when what kept it from starting is over."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol
from weakref import WeakKeyDictionary

from agent_core.errors import DISK_FULL, STORAGE_UNAVAILABLE, DrydockError, EventStoreError, SandboxError
from server.db.storage_health import StorageHealth
from server.session.sandboxes import ENGINE_UNAVAILABLE, Sandboxes
from server.session.web_session import WebSession

logger = logging.getLogger(__name__)

ENGINE_AGAIN_SECONDS: Final = 5.0
"""How often an engine is asked whether it is there that was away for longer than a start may take."""
ENGINE_LONGEST_SECONDS: Final = 600.0
"""The longest pause before what could not be started is tried again, where the engine answers and that fails."""
FIRST_WAIT_SECONDS: Final = 0.5
LONGEST_WAIT_SECONDS: Final = 60.0
START_AGAIN_SECONDS: Final = 1.0
"""How often it is tried again to load what could not even be loaded."""
WORKED_SECONDS: Final = 10.0
"""What fails again within that time after it was started anew has had no room in between."""


class InBackground(Protocol):
    """Does `work` in a task of its own; where it fails that is logged, and it begins again after a pause."""

    def __call__(self, work: Callable[[], Awaitable[None]], *, name: str) -> None: ...


class _Wait(NamedTuple):
    """How long a conversation that could not be started waits, and until when (`time.monotonic`)."""

    seconds: float
    until: float


class FailedStarts:
    """The conversations among `sessions` whose start has failed, as those say themselves; `take_up` loads one anew."""

    def __init__(
        self,
        sessions: Mapping[str, WebSession],
        take_up: Callable[[str], Awaitable[None]],
        in_background: InBackground,
        *,
        sandboxes: Sandboxes,
        health: StorageHealth,
    ) -> None:
        self._sessions = sessions
        self._take_up = take_up
        self._in_background = in_background
        self._sandboxes = sandboxes
        self._health = health
        self._to_start = set[str]()
        self._waits = WeakKeyDictionary[WebSession, _Wait]()
        self._engine_is_awaited = False
        self._engine_pause, self._engine_tried = ENGINE_AGAIN_SECONDS, 0.0

    def failed(self, session: WebSession, error: DrydockError) -> None:
        """Have it start again by itself, if `error` is of a kind that passes."""
        one = session.conversation_id
        if isinstance(error, EventStoreError) and error.code:
            # The storage may work again already, and all that had failed before was started again.
            if not self._health.problem:
                start = partial(self._start_later, one, self._next_wait(session))
                self._in_background(start, name=f"start later:{one}")
        elif isinstance(error, SandboxError) and error.code in (DISK_FULL, STORAGE_UNAVAILABLE):
            limit = self._next_wait(session)

            async def start_with_room() -> None:
                await self._sandboxes.reserve.until_more_room(limit)
                await self._start([one])

            self._in_background(start_with_room, name=f"start with room:{one}")
        elif isinstance(error, SandboxError) and error.code == ENGINE_UNAVAILABLE and not self._engine_is_awaited:
            self._engine_is_awaited = True
            self._in_background(self._after_engine, name="after-engine")

    def start_all(self, name: str) -> None:
        """Start what could not be started, in a task of this name, which ends when all of that was possible."""
        self._in_background(self._start, name=name)

    def forget(self, conversation_id: str) -> None:
        """It is not to be started any more."""
        self._to_start.discard(conversation_id)

    async def _start(self, some: Sequence[str] | None = None) -> None:
        known = self._sessions if some is None else set(some) & self._sessions.keys()
        chosen = {one for one in known if self._sessions[one].start_failed}
        self._to_start |= chosen
        while chosen := chosen & self._to_start:
            await asyncio.gather(*map(self._start_one, chosen))
            if chosen & self._to_start:
                await asyncio.sleep(START_AGAIN_SECONDS)

    async def _start_one(self, conversation_id: str) -> None:
        try:
            await self._take_up(conversation_id)
        except DrydockError as error:
            if isinstance(error, EventStoreError) and error.code:
                return  # nothing can be stored or read again: it is not loaded now, and is known of here alone
            logger.warning("conversation %s does not go on by itself: %s", conversation_id, error)
        self._to_start.discard(conversation_id)

    async def _start_later(self, conversation_id: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._start([conversation_id])

    def _next_wait(self, session: WebSession) -> float:
        """Seconds before it is started again: longer each time that it fails without having worked in between."""
        before, now = self._waits.get(session, _Wait(FIRST_WAIT_SECONDS, 0.0)), time.monotonic()
        has_worked = now > before.until + WORKED_SECONDS
        limit = FIRST_WAIT_SECONDS if has_worked else min(before.seconds * 2, LONGEST_WAIT_SECONDS)
        self._waits[session] = _Wait(limit, now + limit)
        return limit

    async def _after_engine(self) -> None:
        """Wait for the engine for as long as it takes, then start what could not be started.

        One that answers and starts nothing is tried again less and less often.
        """
        if time.monotonic() > self._engine_tried + 2 * ENGINE_LONGEST_SECONDS:
            self._engine_pause = ENGINE_AGAIN_SECONDS
        await asyncio.sleep(self._engine_pause)
        while not await self._sandboxes.can_be_made():  # noqa: ASYNC110 - an engine says nothing by itself
            await asyncio.sleep(ENGINE_AGAIN_SECONDS)
        logger.info("the Docker engine answers again: what could not be started starts now")
        self._engine_pause, self._engine_tried = min(2 * self._engine_pause, ENGINE_LONGEST_SECONDS), time.monotonic()
        self._engine_is_awaited = False
        self.start_all("start after the engine")
