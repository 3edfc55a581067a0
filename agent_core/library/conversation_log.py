"""The log of a library's conversation, read between and beside its sessions."""

from __future__ import annotations

from collections.abc import AsyncIterator

from agent_core.controller.state import ConversationState
from agent_core.events.branches import Branches, read_branch
from agent_core.events.serialization import AnyEvent, from_payload
from agent_core.events.store import EventStore
from agent_core.library.log_facts import LogFacts
from agent_core.library.status import StatusFold
from agent_core.memory.view import View


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
            if fold.branches.rewinds:
                await self.rejoin(fold)
            if self._fold is None:  # nobody else has read it meanwhile
                self._fold = fold
        return self._fold

    async def rejoin(self, fold: StatusFold) -> None:
        """After a rewind: have the fold tell of what counts."""
        core, facts = ConversationState(fold.core.limits), LogFacts()
        async for event in read_branch(self, fold.branches):
            core.fold(event)
            facts.fold(event)
        core.keep(fold.core)
        fold.core, fold.facts = core, facts

    async def page(self, *, after: int = -1) -> list[AnyEvent]:
        """Some events with id > `after`, ascending; an empty list at the end."""
        return [from_payload(one.payload, one.id) for one in await self.store.read(self.conversation_id, after=after)]

    async def history(self) -> AsyncIterator[AnyEvent]:
        """All events that are stored by now."""
        position = -1
        while page := await self.page(after=position):
            for event in page:
                yield event
            position = page[-1].id

    async def branch(self) -> AsyncIterator[AnyEvent]:
        """The events that count now."""
        branches = Branches()
        async for event in self.history():
            branches.fold(event)
        async for event in read_branch(self, branches):
            yield event

    async def view(self) -> View:
        """What a model is shown of the log now."""
        view = View()
        async for event in self.branch():
            view.add(event)
        return view
