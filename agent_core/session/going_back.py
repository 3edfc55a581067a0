"""Going back in a conversation: to any event of its log, with the files of the workspace (agent-core 8.3, 8.4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from agent_core.controller.agent_controller import AgentController
from agent_core.controller.branch_state import opening_of, state_of_branch
from agent_core.errors import NoSuchEventError
from agent_core.events.branches import Branches, Rewind
from agent_core.events.control import AgentState, AgentStateChanged
from agent_core.events.llm_events import SystemPromptEvent
from agent_core.events.serialization import AnyEvent
from agent_core.events.stream import EventStream
from agent_core.runtime.runtime import Runtime


class GoingBack:
    """Takes one conversation back, one request after the other.

    Attributes:
        controller, runtime: those that are at work; None before the session has begun.
        lock: while it is held nothing is taken back; a session begins within it.
    """

    controller: AgentController | None = None
    runtime: Runtime | None = None

    def __init__(self, stream: EventStream, prompt: Callable[[], SystemPromptEvent]) -> None:
        self._stream = stream
        self._prompt = prompt
        self._branches = Branches()
        self.lock = asyncio.Lock()

    async def rewind(self, to: int | None) -> AnyEvent:
        """Go on behind event `to` (None: before the first one), as if nothing had come after it.

        What the agent does is ended first; then it waits for its user. Returns the `Rewind` as stored.

        Raises:
            NoSuchEventError: there is no such event.
            StreamClosedError: the session is closed.
            EventStoreError: it could not be stored; nothing has changed then but that the agent was interrupted.
        """
        place = checked_place(to, self._stream.last_id)
        async with self.lock, self._at_rest():
            async for event in self._stream.history(after=self._branches.last_id):
                self._branches.fold(event)
            state = await state_of_branch(self._stream, self._branches, place)
            opening = opening_of(Rewind(to=place), state, self._prompt())
            if self.controller is None:  # the session goes on to load
                opening.append(AgentStateChanged(agent_state=AgentState.LOADING))
            (rewind, *_) = await self._stream.add_events(opening)
            return rewind

    @asynccontextmanager
    async def _at_rest(self) -> AsyncIterator[None]:
        if self.controller is None or self.runtime is None:
            yield
            return
        async with self.controller.held():
            await self.runtime.interrupt()
            yield


def checked_place(to: int | None, last_id: int) -> int:
    """The id of the last event that is to count; -1 for none.

    Raises:
        NoSuchEventError: there is no such event.
    """
    if to is None:
        return -1
    if isinstance(to, bool) or not isinstance(to, int) or not -1 <= to <= last_id:
        known = (
            f"the log has the events 0 to {last_id}, and null goes before the first" if last_id >= 0 else "it is empty"
        )
        raise NoSuchEventError(f"there is no event {to!r}: {known}")
    return to
