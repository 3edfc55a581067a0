"""`UnloadedLog`: the log of a conversation that is not loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from agent_core.errors import DrydockError
from agent_core.events.control import AgentStateChanged, ChangeAgentState
from agent_core.events.event import utc_now
from agent_core.events.serialization import AnyEvent
from agent_core.events.store import EventStore
from agent_core.events.stream import EventStream
from agent_core.events.transient import STARTING, StatusNotice
from server.db.repositories.conversations import ConversationRecord, ConversationRepository
from server.session.crash_guard import HELD_BACK, SENTENCE, CrashGuard
from server.session.recorder import BUSY_STATES
from server.session.run_queue import RunQueue

TAKEN_UP_SOON: Final = StatusNotice(STARTING, "It was at work when the server ended, and is taken up in a moment.")
_BUSY: Final = frozenset(state.value for state in BUSY_STATES)


class UnloadedLog:
    """For whoever looks at one that is put off, and for what has to be written down; made only when that is wanted.

    `changed` is told when `stream` is another one. A conversation that is loaded owns its log, so this is to be closed
    then. Its methods are to be called one after the other.
    """

    def __init__(
        self,
        conversation_id: str,
        *,
        store: EventStore,
        conversations: ConversationRepository,
        guard: CrashGuard,
        queue: RunQueue,
        changed: Callable[[], None],
    ) -> None:
        self.stream: EventStream | None = None
        self._id = conversation_id
        self._store = store
        self._conversations = conversations
        self._guard = guard
        self._queue = queue
        self._changed = changed

    def is_put_off(self, record: ConversationRecord) -> bool:
        """Whether it was at work when the server ended, and is taken up without being asked to, but not yet."""
        if record.agent_state not in _BUSY:
            return False
        return self._guard.is_held(self._id) or not self._queue.is_open or self._queue.is_coming_up(self._id)

    async def open(self) -> None:
        """Let it be looked at; who does is told what it waits for."""
        self._become(await EventStream.open(self._id, self._store))
        self.tell()  # as it is now, and not before it was opened

    def tell(self) -> None:
        """Tell who looks at it what it waits for."""
        if self._guard.is_held(self._id):
            self._publish(StatusNotice(HELD_BACK, SENTENCE))
        else:
            place = self._queue.place(self._id)
            self._publish(TAKEN_UP_SOON if place is None else place.notice)

    def tell_failure(self, error: BaseException) -> None:
        """Tell who looks at it that it could not be loaded."""
        why = str(error) if isinstance(error, DrydockError) else "the server's log says why"
        self._publish(StatusNotice("STATUS$ERROR", f"It could not be loaded: {why}", "error", start_failed=True))

    async def add(self, events: Sequence[AnyEvent]) -> list[AnyEvent]:
        """Store these; who looks sees them."""
        stream = self.stream or await EventStream.open(self._id, self._store)
        try:
            return await stream.add_events(events)
        finally:
            if stream is not self.stream:
                stream.close()

    async def halt(self, event: ChangeAgentState, notice: StatusNotice | None = None) -> AnyEvent:
        """Store that its user wants this state, and that it has it: it is taken up no more. `notice` is shown first."""
        if notice is not None:
            self._publish(notice)
        state = event.agent_state
        asked = event.model_copy(update={"source": "user", "timestamp": utc_now()})
        stored, _ = await self.add([asked, AgentStateChanged(agent_state=state)])
        self._queue.forget(self._id)  # at once, as whoever looks has seen it
        await self._guard.came_to_rest(self._id)
        await self._conversations.update(self._id, agent_state=state.value)
        self.close()
        return stored

    def close(self) -> None:
        self._become(None)

    def _publish(self, notice: StatusNotice) -> None:
        if self.stream is not None:
            self.stream.publish(notice)

    def _become(self, stream: EventStream | None) -> None:
        before, self.stream = self.stream, stream
        if before is not None:
            before.close()
        self._changed()
