"""`UnloadedLog`: the log of a conversation that is not loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agent_core.events.serialization import AnyEvent
from agent_core.events.store import EventStore
from agent_core.events.stream import EventStream
from agent_core.events.transient import StatusNotice


class UnloadedLog:
    """For whoever looks at it, and for what has to be written down; `changed` is told when `stream` is another one.

    It costs no more than the stream. A conversation that is loaded owns its log, so this is to be closed then.
    """

    def __init__(self, conversation_id: str, store: EventStore, changed: Callable[[], None]) -> None:
        self.stream: EventStream | None = None
        self._id = conversation_id
        self._store = store
        self._changed = changed

    async def open(self, notice: StatusNotice) -> None:
        """Let it be looked at; who does is told this, until something else is told."""
        stream = await EventStream.open(self._id, self._store)
        stream.publish(notice)
        self._become(stream)

    def tell(self, notice: StatusNotice) -> None:
        if self.stream is not None:
            self.stream.publish(notice)

    async def add(self, events: Sequence[AnyEvent]) -> list[AnyEvent]:
        """Store these; who looks sees them."""
        stream = await EventStream.open(self._id, self._store)
        try:
            return await stream.add_events(events)
        finally:
            if self.stream is None:
                stream.close()
            else:
                self._become(stream)

    def close(self) -> None:
        self._become(None)

    def _become(self, stream: EventStream | None) -> None:
        before, self.stream = self.stream, stream
        if before is not None:
            before.close()
        self._changed()
