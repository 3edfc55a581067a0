"""The log of a library's conversation, read between and beside its sessions."""

from __future__ import annotations

from collections.abc import AsyncIterator

from agent_core.events.serialization import AnyEvent, from_payload
from agent_core.events.store import EventStore
from agent_core.memory.view import View
from agent_core.session.status import StatusFold


class ConversationLog:
    """Reads one conversation's log, and keeps what it tells of the status."""

    def __init__(self, conversation_id: str, store: EventStore) -> None:
        self.conversation_id = conversation_id
        self.store = store
        self._fold: StatusFold | None = None

    async def present(self) -> StatusFold:
        """The status by the whole log, read once; whoever follows the log from then on keeps it up to date."""
        if self._fold is None:
            fold = StatusFold()
            async for event in self.history():
                fold.observe(event)
            if self._fold is None:  # nobody else has read it meanwhile
                self._fold = fold
        return self._fold

    async def history(self) -> AsyncIterator[AnyEvent]:
        """All events that are stored by now."""
        position = -1
        while page := await self.store.read(self.conversation_id, after=position):
            for record in page:
                yield from_payload(record.payload, record.id)
            position = page[-1].id

    async def view(self) -> View:
        """What a model is shown of the log now."""
        view = View()
        async for event in self.history():
            view.add(event)
        return view
