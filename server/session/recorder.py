"""The SERVER subscriber: reads a conversation's log and keeps its facts (list, costs, state) up to date."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from agent_core.controller.usage import metrics_of
from agent_core.errors import EventStoreError
from agent_core.events.control import AgentState, AgentStateChanged
from agent_core.events.event import Event
from agent_core.events.llm_events import MessageEvent
from agent_core.events.serialization import AnyEvent
from agent_core.events.stream import EventStream
from server.db.conversations import ConversationRepository
from server.session.branch_keeper import BranchKeeper

logger = logging.getLogger(__name__)

BUSY_STATES = frozenset({AgentState.RUNNING, AgentState.USER_CONFIRMED, AgentState.RATE_LIMITED, AgentState.LOADING})
"""An agent in one of these is at work, or was when its process ended."""


class Recorder:
    """Follows one stream until it is closed and read to its end.

    Args:
        on_user_message: told the text of each message of the user; must not block.
        on_activity: told of each event; must not block.
        on_rest: called once, when the agent is first seen at rest.
        branches: told of each event while this runs.
    """

    def __init__(
        self,
        stream: EventStream,
        conversations: ConversationRepository,
        *,
        on_user_message: Callable[[str], None],
        on_activity: Callable[[], None],
        on_rest: Callable[[], Awaitable[None]] | None = None,
        branches: BranchKeeper,
    ) -> None:
        self._stream = stream
        self._conversations = conversations
        self._on_user_message = on_user_message
        self._on_activity = on_activity
        self._on_rest = on_rest
        self._branches = branches
        self.recorded_state: AgentState | None = None

    async def run(self, *, after: int) -> None:
        """Record every event behind `after`."""
        async with self._branches, self._stream.subscribe(after=after) as events:
            async for event in events:
                if isinstance(event, Event):  # no notices were asked for
                    await self._record(event)

    async def _record(self, event: AnyEvent) -> None:
        self._on_activity()
        self._branches.observe(event)
        conversation_id = self._stream.conversation_id
        self._conversations.touch(conversation_id, last_updated_at=event.timestamp)
        if (metrics := metrics_of(event)) is not None:
            self._conversations.touch(
                conversation_id,
                accumulated_cost=metrics.accumulated_cost,
                prompt_tokens=metrics.usage.prompt_tokens,
                completion_tokens=metrics.usage.completion_tokens,
            )
        if isinstance(event, MessageEvent) and event.source == "user":
            self._on_user_message(event.llm_message.text)
        if isinstance(event, AgentStateChanged) and event.agent_state is not self.recorded_state:
            await self.record_state(event.agent_state)

    async def record_state(self, state: AgentState) -> None:
        """Keep the agent's state where recovery looks for it, durably."""
        try:
            await self._conversations.update(self._stream.conversation_id, agent_state=state.value)
            self.recorded_state = state
            if self._on_rest is not None and state not in BUSY_STATES:
                await self._on_rest()
                self._on_rest = None
        except EventStoreError as error:
            logger.warning("the state of conversation %s was not recorded: %s", self._stream.conversation_id, error)
