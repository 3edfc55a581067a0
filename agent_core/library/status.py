"""The execution status of a conversation, folded from its log."""

from __future__ import annotations

from array import array
from enum import StrEnum
from typing import Final

from agent_core.controller.state import ConversationState, Limits
from agent_core.events.branches import Branches, FilesRestored, Rewind
from agent_core.events.control import (
    AgentState,
    AgentStateChanged,
    ChangeAgentState,
    ConfirmationPolicyChanged,
    HookExecutionEvent,
    InterruptEvent,
    MetricsUpdated,
    PauseEvent,
    RecallAction,
    RecallObservation,
)
from agent_core.events.llm_events import ActionEvent, MessageEvent, UserRejectObservation
from agent_core.events.serialization import AnyEvent
from agent_core.library.log_facts import LogFacts

STUCK: Final = "AgentStuckInLoopError"
LIMIT: Final = "RuntimeError: Agent reached maximum"


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


_BOOKKEEPING: Final = (
    AgentStateChanged,
    ChangeAgentState,
    ConfirmationPolicyChanged,
    FilesRestored,
    MetricsUpdated,
    RecallAction,
    Rewind,
)

_STATUS: Final = {
    AgentState.RUNNING: ExecutionStatus.RUNNING,
    AgentState.RATE_LIMITED: ExecutionStatus.RUNNING,
    AgentState.USER_CONFIRMED: ExecutionStatus.RUNNING,
    AgentState.PAUSED: ExecutionStatus.PAUSED,
    AgentState.STOPPED: ExecutionStatus.PAUSED,
    AgentState.AWAITING_USER_CONFIRMATION: ExecutionStatus.WAITING_FOR_CONFIRMATION,
    AgentState.FINISHED: ExecutionStatus.FINISHED,
    AgentState.ERROR: ExecutionStatus.STUCK,
}
"""Of the state `error` it is said whether the agent is stuck; otherwise the status is error as well."""


_GOES_ON: Final = frozenset({AgentState.PAUSED, AgentState.STOPPED, AgentState.ERROR, AgentState.RUNNING})
"""The states from which a run goes on without a word of the user."""

_MARKERS: Final = (PauseEvent, InterruptEvent)


def is_bookkeeping(event: AnyEvent) -> bool:
    """Whether it says only how the conversation is kept: neither was anything said with it, nor done."""
    if isinstance(event, _MARKERS):
        return False
    return isinstance(event, _BOOKKEEPING) or (isinstance(event, RecallObservation) and event.is_empty)


class StatusFold:
    """The status as the log tells it, event by event. After a rewind `core` and `facts` have to be made anew.

    Attributes:
        branches: which events count.
        shown: the ids of all events that are no bookkeeping.
        core: what the controller decides from.
        facts: what else the log tells.
        leaf: id of the newest event that counts, other than changes of state; None: there is none, or all are undone.
        is_rewound: the agent has done nothing since the conversation was taken back.
        is_asked: there is something of the user that the agent has not taken up yet: a message, or a refusal.
        awaits_change: the user asked for another state, which has not been entered yet.
        failure: what the agent failed with, in words; empty unless the status is error or stuck.
    """

    def __init__(self) -> None:
        self.core = ConversationState(Limits(max_iterations=0))
        self.facts = LogFacts()
        self.branches = Branches()
        self.shown = array("q")
        self.leaf: int | None = None
        self.is_rewound = False
        self.last_id = -1
        self.state = AgentState.AWAITING_USER_INPUT
        self.is_asked = False
        self.awaits_change = False
        self.failure = ""
        self._reason = ""
        self._has_answered = False
        self._is_opening = False

    def observe(self, event: AnyEvent) -> None:
        """Take the next event into account."""
        self.last_id = event.id
        if not is_bookkeeping(event):
            self.shown.append(event.id)
        if not self.branches.fold(event):
            return
        self._move_leaf(event)
        self.core.fold(event)
        self.facts.fold(event)
        if isinstance(event, AgentStateChanged):
            self.awaits_change = False
            if event.agent_state is not AgentState.LOADING:
                self._enter(event)
        elif isinstance(event, ChangeAgentState) and event.source == "user":
            self.awaits_change = event.agent_state in (AgentState.USER_CONFIRMED, AgentState.USER_REJECTED)
        elif isinstance(event, UserRejectObservation):
            self.is_asked = self.is_asked or (event.rejection_source == "user" and not self.core.undecided)
            self._has_answered = False
        elif isinstance(event, HookExecutionEvent):
            if event.blocked and event.message_id == self.facts.last_user_message_id:
                self.is_asked = False
        elif isinstance(event, ActionEvent | MessageEvent) and event.seen is not None and event.source == "agent":
            self.is_asked = self.is_asked and event.seen < (self.facts.last_user_message_id or 0)
            self._has_answered = isinstance(event, MessageEvent) and event.wait_for_response
        elif isinstance(event, MessageEvent):
            if event.source == "user":
                self.is_asked, self._has_answered = True, False
            elif event.source == "agent":
                self._has_answered = event.wait_for_response

    def _move_leaf(self, event: AnyEvent) -> None:
        if isinstance(event, Rewind):
            self.leaf = event.to if event.to >= 0 else None
            self.is_rewound, self.is_asked, self._has_answered = True, False, False
            self._is_opening = True
        elif isinstance(event, AgentStateChanged):
            self._is_opening = False
        elif not (self._is_opening or isinstance(event, ChangeAgentState | FilesRestored | MetricsUpdated)):
            self.leaf = event.id

    def _enter(self, event: AgentStateChanged) -> None:
        self.state = event.agent_state
        failed = event.agent_state is AgentState.ERROR
        self._reason = event.reason if failed else ""
        self.failure = (event.detail or event.reason or "The agent failed.") if failed else ""
        if event.agent_state in (AgentState.RUNNING, AgentState.ERROR):
            self.is_asked = self.is_rewound = False

    @property
    def awaits_approval(self) -> bool:
        """Whether to run is to approve: actions wait, and the user has said nothing else."""
        return self.state is AgentState.AWAITING_USER_CONFIRMATION and not self.is_asked

    @property
    def wants_run(self) -> bool:
        """Whether a run has anything to do."""
        return self.is_asked or self.awaits_approval or self.is_rewound or self.state in _GOES_ON

    @property
    def is_failure(self) -> bool:
        """Whether a run that ends here failed, other than by a limit or a loop of the agent."""
        return bool(self.failure) and not self._reason.startswith((STUCK, LIMIT))

    @property
    def status(self) -> ExecutionStatus:
        """The execution status; an agent that answered with words is finished."""
        if self.state is AgentState.ERROR and not self._reason.startswith(STUCK):
            return ExecutionStatus.ERROR  # a message does not mend what failed; the next run does
        status = _STATUS.get(self.state, ExecutionStatus.IDLE)
        if self.is_asked and status.is_terminal:
            return ExecutionStatus.IDLE
        return ExecutionStatus.FINISHED if status is ExecutionStatus.IDLE and self._has_answered else status
