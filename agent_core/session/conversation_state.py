"""What a library's program sees of its conversation: its status and its events (agent-core 8.1, 8.2)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from enum import StrEnum
from typing import Any, overload

from agent_core.agent.base import AgentBase
from agent_core.controller.account import metrics_of
from agent_core.events.control import AgentState, AgentStateChanged, ChangeAgentState
from agent_core.events.llm_events import MessageEvent, MetricsSnapshot
from agent_core.events.serialization import AnyEvent, from_payload
from agent_core.events.store import EventStore
from agent_core.llm.metrics import ConversationStats
from agent_core.runtime.loop_thread import library_loop
from agent_core.session.workspace import Workspace

PAGE = 200
STUCK = "AgentStuckInLoopError"
LIMIT = "RuntimeError: Agent reached maximum"


class ExecutionStatus(StrEnum):
    """What a conversation is doing."""

    IDLE = "idle"
    RUNNING = "running"
    PAUSED = "paused"
    WAITING_FOR_CONFIRMATION = "waiting_for_confirmation"
    FINISHED = "finished"
    ERROR = "error"
    STUCK = "stuck"
    DELETING = "deleting"

    @property
    def is_terminal(self) -> bool:
        """Whether the agent is through with what it was asked (finished, error, stuck)."""
        return self in (ExecutionStatus.FINISHED, ExecutionStatus.ERROR, ExecutionStatus.STUCK)


_STATUS = {
    AgentState.RUNNING: ExecutionStatus.RUNNING,
    AgentState.RATE_LIMITED: ExecutionStatus.RUNNING,
    AgentState.USER_CONFIRMED: ExecutionStatus.RUNNING,
    AgentState.PAUSED: ExecutionStatus.PAUSED,
    AgentState.STOPPED: ExecutionStatus.PAUSED,
    AgentState.AWAITING_USER_CONFIRMATION: ExecutionStatus.WAITING_FOR_CONFIRMATION,
    AgentState.FINISHED: ExecutionStatus.FINISHED,
}


class StatusFold:
    """The status as the log tells it, event by event.

    Attributes:
        is_asked: the user said something that the agent has not taken up yet.
        awaits_change: the user asked for another state, which has not been entered yet.
        metrics: what the conversation has cost.
        failure: what the agent failed with, in words; empty unless the status is error or stuck.
    """

    def __init__(self) -> None:
        self.last_id = -1
        self.state = AgentState.AWAITING_USER_INPUT
        self.is_asked = False
        self.awaits_change = False
        self.failure = ""
        self.metrics = MetricsSnapshot()
        self._reason = ""
        self._has_answered = False

    def observe(self, event: AnyEvent) -> None:
        """Take the next event into account."""
        self.last_id = event.id
        self.metrics = metrics_of(event) or self.metrics
        if isinstance(event, AgentStateChanged):
            self.awaits_change = False
            if event.agent_state is not AgentState.LOADING:
                self._enter(event)
        elif isinstance(event, ChangeAgentState) and event.source == "user":
            self.awaits_change = event.agent_state in (AgentState.USER_CONFIRMED, AgentState.USER_REJECTED)
        elif isinstance(event, MessageEvent):
            if event.source == "user":
                self.is_asked, self._has_answered = True, False
            elif event.source == "agent":
                self._has_answered = event.wait_for_response

    def _enter(self, event: AgentStateChanged) -> None:
        self.state = event.agent_state
        failed = event.agent_state is AgentState.ERROR
        self._reason = event.reason if failed else ""
        self.failure = (event.detail or event.reason or "The agent failed.") if failed else ""
        if event.agent_state in (AgentState.RUNNING, AgentState.ERROR):
            self.is_asked = False

    @property
    def is_failure(self) -> bool:
        """Whether a run that ends here failed, other than by a limit or a loop of the agent."""
        return bool(self.failure) and not self._reason.startswith((STUCK, LIMIT))

    @property
    def status(self) -> ExecutionStatus:
        """As agent-core 8.1 names it; an agent that answered with words is finished."""
        if self.state is AgentState.ERROR:
            return ExecutionStatus.STUCK if self._reason.startswith(STUCK) else ExecutionStatus.ERROR
        status = _STATUS.get(self.state, ExecutionStatus.IDLE)
        if self.is_asked and status.is_terminal:
            return ExecutionStatus.IDLE
        return ExecutionStatus.FINISHED if status is ExecutionStatus.IDLE and self._has_answered else status


class Events(Sequence[AnyEvent]):
    """The events of a log, read from its store when they are asked for."""

    def __init__(self, conversation_id: str, store: EventStore) -> None:
        self._id = conversation_id
        self._store = store

    def __len__(self) -> int:
        return library_loop().run(self._store.last_id(self._id)) + 1

    @overload
    def __getitem__(self, index: int) -> AnyEvent: ...
    @overload
    def __getitem__(self, index: slice) -> list[AnyEvent]: ...
    def __getitem__(self, index: int | slice) -> AnyEvent | list[AnyEvent]:
        count = len(self)
        if isinstance(index, slice):
            return [self._read(i, 1)[0] for i in range(*index.indices(count))]
        position = index + count if index < 0 else index
        if not 0 <= position < count:
            raise IndexError(f"event {index} of a log of {count}")
        return self._read(position, 1)[0]

    def __iter__(self) -> Iterator[AnyEvent]:
        position = 0
        while page := self._read(position, PAGE):
            yield from page
            position = page[-1].id + 1

    def _read(self, start: int, count: int) -> list[AnyEvent]:
        stored = library_loop().run(self._store.read(self._id, after=start - 1, limit=count))
        return [from_payload(record.payload, record.id) for record in stored]


class ConversationView:
    """The state of a conversation, as its program and the factories of its tools see it (``conv_state``).

    Attributes:
        id: the conversation's id.
        agent: its agent.
        workspace: where it works (`working_dir`).
        persistence_dir: where its log is kept; None: in memory.
        events: its log, like a list.
    """

    def __init__(
        self,
        conversation_id: str,
        agent: AgentBase,
        workspace: Workspace,
        *,
        store: EventStore,
        persistence_dir: str | None,
        max_iterations: int,
        fold: Callable[[], Coroutine[Any, Any, StatusFold]],
    ) -> None:
        self.id = conversation_id
        self.agent = agent
        self.workspace = workspace
        self.persistence_dir = persistence_dir
        self.max_iterations = max_iterations
        self.events = Events(conversation_id, store)
        self._fold = fold

    @property
    def execution_status(self) -> ExecutionStatus:
        """What the conversation is doing."""
        return library_loop().run(self._fold()).status

    @property
    def stats(self) -> ConversationStats:
        """What its models have cost, by usage id, as its log says."""
        return ConversationStats(library_loop().run(self._fold()).metrics)
