"""A library conversation's log: its events, and the execution status that is folded from them."""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from agent_core.controller.state import ControllerState, Limits
from agent_core.events.branches import Branches, FilesRestored, Rewind, read_branch
from agent_core.events.control import (
    AgentState,
    AgentStateChanged,
    ChangeAgentState,
    Condensation,
    ConfirmationPolicyChanged,
    HookExecutionEvent,
    InterruptEvent,
    MetricsUpdated,
    PauseEvent,
    RecallAction,
    RecallObservation,
)
from agent_core.events.event import Event
from agent_core.events.llm_events import ActionEvent, MessageEvent, ObservationEvent, UserRejectObservation
from agent_core.events.serialization import AnyEvent
from agent_core.events.store import EventStore
from agent_core.memory.view import View
from agent_core.session.rewind import StoredLog
from agent_core.tools.builtin import FinishAction
from agent_core.tools.invoke_skill import InvokeSkillObservation

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
        """Whether the agent has ended: finished, error or stuck."""
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

_GOES_ON: Final = frozenset({AgentState.PAUSED, AgentState.STOPPED, AgentState.ERROR, AgentState.RUNNING})
"""States from which a run goes on without a word of the user."""


class StatusFold:
    """The status as the log tells it, event by event. After a rewind `core` and `facts` have to be made anew.

    `branches` says which events count, `shown` are the ids of those that are no bookkeeping, and `leaf` is the newest
    that is no change of state. `is_rewound`: the agent has done nothing since. `has_request`: a message or refusal
    waits for it. `awaits_change`: the user asked for another state, which has not been entered yet. `failure` is empty
    unless the status is error or stuck.
    """

    def __init__(self) -> None:
        self.core = ControllerState(Limits(max_iterations=0))
        self.facts = LogFacts()
        self.branches = Branches()
        self.shown = array("q")
        self.leaf: int | None = None
        self.is_rewound = False
        self.last_id = -1
        self.state = AgentState.AWAITING_USER_INPUT
        self.has_request = False
        self.awaits_change = False
        self.failure = ""
        self._reason = ""
        self._has_answered = False
        self._is_opening = False

    def observe(self, event: AnyEvent) -> None:
        self.last_id = event.id
        if not is_bookkeeping(event):
            self.shown.append(event.id)
        if not self.branches.fold(event):
            return
        if isinstance(event, Rewind):
            self.leaf = event.to if event.to >= 0 else None
            self.is_rewound, self.has_request, self._has_answered = True, False, False
            self._is_opening = True
        elif isinstance(event, AgentStateChanged):
            self._is_opening = False
        elif not (self._is_opening or isinstance(event, ChangeAgentState | FilesRestored | MetricsUpdated)):
            self.leaf = event.id
        self.core.fold(event)
        self.facts.fold(event)
        if isinstance(event, AgentStateChanged):
            self.awaits_change = False
            if event.agent_state is not AgentState.LOADING:
                failed = event.agent_state is AgentState.ERROR
                self.state = event.agent_state
                self._reason = event.reason if failed else ""
                self.failure = (event.detail or event.reason or "The agent failed.") if failed else ""
                if failed or event.agent_state is AgentState.RUNNING:
                    self.has_request = self.is_rewound = False
        elif isinstance(event, ChangeAgentState) and event.source == "user":
            is_decision = event.agent_state in (AgentState.USER_CONFIRMED, AgentState.USER_REJECTED)
            self.awaits_change = is_decision and event.action_ids is None
        elif isinstance(event, UserRejectObservation):
            self.has_request = self.has_request or (event.rejection_source == "user" and not self.core.undecided)
            self._has_answered = False
        elif isinstance(event, HookExecutionEvent):
            if event.blocked and event.message_id == self.facts.last_user_message_id:
                self.has_request = False
        elif isinstance(event, ActionEvent | MessageEvent) and event.seen is not None and event.source == "agent":
            self.has_request = self.has_request and event.seen < (self.facts.last_user_message_id or 0)
            self._has_answered = isinstance(event, MessageEvent) and event.wait_for_response
        elif isinstance(event, MessageEvent):
            if event.source == "user":
                self.has_request, self._has_answered = True, False
            elif event.source == "agent":
                self._has_answered = event.wait_for_response

    @property
    def awaits_approval(self) -> bool:
        """Whether to run is to approve: actions wait, and the user has said nothing else."""
        return self.state is AgentState.AWAITING_USER_CONFIRMATION and not self.has_request

    @property
    def wants_run(self) -> bool:
        return self.has_request or self.awaits_approval or self.is_rewound or self.state in _GOES_ON

    @property
    def is_failure(self) -> bool:
        """Whether a run that ends here failed, other than by a limit or a loop of the agent."""
        return bool(self.failure) and not self._reason.startswith((STUCK, LIMIT))

    @property
    def status(self) -> ExecutionStatus:
        if self.state is AgentState.ERROR and not self._reason.startswith(STUCK):
            return ExecutionStatus.ERROR  # a message does not mend what failed; the next run does
        status = _STATUS.get(self.state, ExecutionStatus.IDLE)
        if self.has_request and status.is_terminal:
            return ExecutionStatus.IDLE
        return ExecutionStatus.FINISHED if status is ExecutionStatus.IDLE and self._has_answered else status


@dataclass(slots=True)
class LogFacts:
    """A fold over a log; names of skills are forgotten with the events that told them.

    Names are held by the id of the event that told them, reasons of hooks by the id of what they refused.
    """

    last_user_message_id: int | None = None
    recalled: dict[str, int] = field(default_factory=dict)
    path_rules: dict[str, int] = field(default_factory=dict)
    invoked: dict[str, int] = field(default_factory=dict)
    blocked_actions: dict[int, str] = field(default_factory=dict)
    blocked_messages: dict[int, str] = field(default_factory=dict)

    def fold(self, event: AnyEvent) -> None:
        match event:
            case MessageEvent(source="user"):
                self.last_user_message_id = event.id
            case RecallObservation():
                self.recalled.update((one.name, event.id) for one in event.microagent_knowledge)
            case ObservationEvent():
                self.path_rules.update((name, event.id) for name in event.activated_skills)
                if isinstance(event.observation, InvokeSkillObservation) and event.observation.skill_name:
                    self.invoked[event.observation.skill_name] = event.id
            case UserRejectObservation(rejection_source="hook"):
                self.blocked_actions[event.cause] = event.rejection_reason
            case HookExecutionEvent(blocked=True) if event.message_id is not None:
                self.blocked_messages[event.message_id] = event.reason
            case Condensation():
                forgotten = set(event.forgotten_event_ids)
                for known in (self.recalled, self.path_rules, self.invoked):
                    for name in [name for name, place in known.items() if place in forgotten]:
                        del known[name]


def is_bookkeeping(event: AnyEvent) -> bool:
    """Whether an event tells only how the conversation is kept, not what was said or done."""
    if isinstance(event, PauseEvent | InterruptEvent):
        return False
    return isinstance(event, _BOOKKEEPING) or (isinstance(event, RecallObservation) and event.is_empty)


class ConversationLog(StoredLog):
    """Reads one conversation's log, between and beside its sessions, and keeps the status."""

    def __init__(self, store: EventStore, conversation_id: str) -> None:
        super().__init__(store, conversation_id)
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
        core, facts = ControllerState(fold.core.limits), LogFacts()
        async for event in read_branch(self, fold.branches):
            core.fold(event)
            facts.fold(event)
        core.keep(fold.core)
        fold.core, fold.facts = core, facts

    async def history(self) -> AsyncIterator[AnyEvent]:
        position = -1
        while page := await self.page(after=position):
            for event in page:
                yield event
            position = page[-1].id

    async def branch(self) -> AsyncIterator[AnyEvent]:
        branches = Branches()
        async for event in self.history():
            branches.fold(event)
        async for event in read_branch(self, branches):
            yield event

    async def view(self) -> View:
        view = View()
        async for event in self.branch():
            view.add(event)
        return view


def get_agent_final_response(events: Sequence[Event]) -> str:
    """What the agent told its user last, with `finish` or in words; a structured answer as JSON, "" for nothing."""
    for event in reversed(events):
        if isinstance(event, ActionEvent) and event.source == "agent" and isinstance(event.action, FinishAction):
            return event.action.message
        if isinstance(event, MessageEvent) and event.source == "agent" and not event.is_blank:
            return event.llm_message.text
    return ""
