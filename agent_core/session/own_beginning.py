"""Where a log's own events begin: behind those of the conversation that was imported into it, if one was."""

from __future__ import annotations

from agent_core.agent.prompted import FIRST_EVENTS
from agent_core.events.llm_events import MessageEvent, SystemPromptEvent
from agent_core.events.recorded import Recorded
from agent_core.events.serialization import AnyEvent
from agent_core.events.stream import EventStream

OPENING = 20
"""Within so many events of its own the prompt stands, whatever a rewind or a fork has written before it."""


async def own_beginning(stream: EventStream) -> list[AnyEvent]:
    """The first events, as many as tell whether the agent has its prompt already; none of those that were imported."""
    first = await stream.page(limit=FIRST_EVENTS)
    if not first or not isinstance(first[0], Recorded):
        return first
    imported, own = first[0].id, stream.last_id + 1
    while own - imported > 1:
        middle = (imported + own) // 2
        found = await stream.page(after=middle - 1, limit=1)
        if isinstance(found[0], Recorded):
            imported = middle
        else:
            own = middle
    opening = await stream.page(after=imported, limit=OPENING)
    return [event for event in opening if isinstance(event, SystemPromptEvent | MessageEvent)]
