"""A conversation's state, folded from its log, and what has to happen next in it.

Both are pure: the same log gives the same state in any process.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from agent_core.events.branches import Branches, Pages, Rewind, read_branch
from agent_core.events.classification import ErrorClassification
from agent_core.events.control import (
    AgentState,
    AgentStateChanged,
    ChangeAgentState,
    Condensation,
    CondensationRequest,
    ConfirmationPolicyChanged,
    HookExecutionEvent,
    LoopDetected,
    MetricsUpdated,
    RecallAction,
    RecallObservation,
)
from agent_core.events.llm_events import (
    ActionDecision,
    ActionEvent,
    AgentErrorEvent,
    CriticResult,
    MessageEvent,
    MetricsSnapshot,
    ObservationEvent,
    SystemPromptEvent,
    UserRejectObservation,
)
from agent_core.events.messages import ImageContent
from agent_core.events.serialization import AnyEvent
from agent_core.tools.builtin import FinishObservation


@dataclass(slots=True)
class Limits:
    """Limits of an agent without its user: responses of the model, and US dollars (None: no limit).

    Responses are counted from the beginning of the conversation, with `per_run` of each run.
    """

    max_iterations: int
    max_budget: float | None = None
    per_run: bool = False
    iteration_limit: int = 0
    budget_limit: float | None = None

    def __post_init__(self) -> None:
        self.iteration_limit = self.max_iterations
        self.budget_limit = self.max_budget

    def extend(self, iterations: int, cost: float) -> None:
        """Raise a limit that was hit by its initial amount, as the agent begins to work."""
        if self.per_run or iterations >= self.iteration_limit:
            self.iteration_limit = iterations + self.max_iterations
        if self.max_budget is not None and self.budget_limit is not None and cost >= self.budget_limit:
            self.budget_limit = cost + self.max_budget


RESUMABLE = frozenset(
    {
        AgentState.RUNNING,
        AgentState.PAUSED,
        AgentState.AWAITING_USER_INPUT,
        AgentState.FINISHED,
        AgentState.AWAITING_USER_CONFIRMATION,
    }
)
"""States in which a conversation that is loaded again goes on; from any other it waits for the user."""

INTERRUPTING = frozenset(
    {AgentState.STOPPED, AgentState.PAUSED, AgentState.FINISHED, AgentState.REJECTED, AgentState.AWAITING_USER_INPUT}
)
"""States that a user may ask for and that end the model's answer and running commands."""

_AT_WORK = frozenset({AgentState.RUNNING, AgentState.RATE_LIMITED, AgentState.USER_CONFIRMED})

MOST_UNSEEN = 100
"""So many of the newest messages of the user are known by their ids."""

CRITIC = "critic"

EXIT = "/exit"


class Move(Enum):
    """The next thing that a running conversation needs."""

    WAIT = auto()
    RECALL = auto()
    STEP = auto()
    FINISH = auto()
    AWAIT_INPUT = auto()
    RESUME = auto()


@dataclass(slots=True)
class ControllerState:
    """Everything that the controller decides from. `fold` takes the events in the order of their ids.

    Attributes:
        policy: the confirmation policy that replaces the configured one, as data.
        wants_exit: whether the user's newest message is ``/exit``.
        shows_images: whether it has images.
        refinements: how often the critic has sent the agent on since then.
        is_blocked: whether hooks have refused the user's newest message.
        loop: what the agent was stopped for, until it runs again.
        max_steps: after how many steps the run that was asked for is to be paused.
    """

    limits: Limits
    agent_state: AgentState = AgentState.LOADING
    resumable: AgentState | None = None
    last_event_id: int = -1
    has_system_prompt: bool = False
    user_messages: int = 0
    iterations: int = 0
    empty_replies: int = 0
    fruitless_replies: int = 0
    metrics: MetricsSnapshot = field(default_factory=MetricsSnapshot)
    unrecalled: dict[int, str] = field(default_factory=dict)
    pending_recalls: set[int] = field(default_factory=set)
    unanswered: dict[int, ActionEvent] = field(default_factory=dict)
    undecided: dict[int, ActionEvent] = field(default_factory=dict)
    last_interruption_id: int = -1
    policy: dict[str, Any] | None = None
    wants_exit: bool = False
    shows_images: bool = False
    refinements: int = 0
    finish_result: CriticResult | None = None
    is_blocked: bool = False
    last_words: str = ""
    loop: LoopDetected | None = None
    max_steps: int | None = None
    _last_response_id: str = ""
    _seen: int = -1
    _due: int = -1
    _requested_state: AgentState | None = None
    _run_requested: bool = False
    _last_run_request: int = -1
    _held: int = -1
    _user_messages: list[int] = field(default_factory=list)
    _finished: bool = False
    _finishing_response: str = ""

    def fold(self, event: AnyEvent) -> None:
        self.last_event_id = event.id
        match event:
            case MessageEvent(source="user"):
                self._user_message(event)
            case MessageEvent(source="agent"):
                self._response(event.llm_response_id or "", event.seen, event.metrics)
                self.last_words = event.llm_message.text or self.last_words
                if event.wait_for_response:
                    self.empty_replies = self.fruitless_replies = 0
            case MessageEvent():
                self._due = event.id
                if event.sender == CRITIC:
                    self.refinements += 1
                    self._finished, self.finish_result = False, None
                if event.llm_response_id:  # a nudge that answers an empty reply
                    self._response(event.llm_response_id, event.seen, event.metrics)
                    self.empty_replies += 1
            case ActionEvent():
                self._action(event)
            case ObservationEvent() | UserRejectObservation() | AgentErrorEvent():
                self._answer(event)
            case ActionDecision():
                self.undecided.pop(event.cause, None)
            case RecallAction():
                self.pending_recalls.add(event.id)
                if event.cause is not None:
                    self.unrecalled.pop(event.cause, None)
            case RecallObservation():
                self.pending_recalls.discard(event.cause)
                self._due = event.id
            case Condensation() | CondensationRequest():
                self._due = event.id
                if isinstance(event, Condensation) and event.metrics is not None:
                    self.metrics = event.metrics
            case MetricsUpdated():
                self.metrics = event.metrics
                self.iterations += event.sub_agent.iterations if event.sub_agent is not None else 0
            case SystemPromptEvent():
                self.has_system_prompt = True
            case ChangeAgentState(source="user"):
                self._request(event)
            case AgentStateChanged():
                self._state_changed(event)
            case HookExecutionEvent(blocked=True, message_id=int(message_id)) if message_id in self._user_messages:
                self.is_blocked = message_id == self._user_messages[-1]
                self._user_messages.remove(message_id)
                self.unrecalled.pop(message_id, None)
                self.user_messages -= 1
            case ConfirmationPolicyChanged():
                self.policy = event.policy
            case Rewind():
                self.last_interruption_id = event.id
                self.resumable = AgentState.AWAITING_USER_INPUT
                if event.forked_from:
                    self.iterations, limits = 0, self.limits
                    self.limits = Limits(limits.max_iterations, limits.max_budget, per_run=limits.per_run)
            case LoopDetected():
                self.loop = event

    def next_move(self) -> Move:
        answered = not self.unanswered and not self.undecided
        if self.agent_state is AgentState.USER_CONFIRMED and answered:
            return Move.RESUME
        if self.agent_state is AgentState.USER_REJECTED and answered:
            # Refused with a message: the agent never rests, so that nobody takes that for the message's answer.
            return Move.RESUME if self.wants_attention else Move.AWAIT_INPUT
        if self.agent_state is not AgentState.RUNNING:
            return Move.WAIT
        if self.unrecalled:
            return Move.RECALL
        if self.pending_recalls or not answered:
            return Move.WAIT
        if self._due > self._seen or self._last_user_message > self._seen:
            return Move.STEP
        return Move.FINISH if self._finished or self.is_blocked else Move.AWAIT_INPUT

    @property
    def _last_user_message(self) -> int:
        return self._user_messages[-1] if self._user_messages else -1

    def keep(self, whole: ControllerState) -> None:
        """Take over from the state of the whole log what no rewind undoes; `self` is folded from the branch alone."""
        self.limits, self.iterations, self.metrics = whole.limits, whole.iterations, whole.metrics
        self.agent_state, self.resumable, self.policy = whole.agent_state, whole.resumable, whole.policy
        self.max_steps = whole.max_steps
        self.last_event_id, self.last_interruption_id = whole.last_event_id, whole.last_interruption_id
        self._requested_state, self._last_run_request = whole._requested_state, whole._last_run_request

    @property
    def wants_attention(self) -> bool:
        """Whether a user's message came after the last interruption that the user asked for (a stop, say)."""
        return bool(self.unrecalled) and max(self.unrecalled) > self.last_interruption_id and not self.is_held

    @property
    def is_held(self) -> bool:
        """Whether the newest message waits until a run is asked for, and the agent is not at work."""
        is_newest = bool(self.unrecalled) and max(self.unrecalled) == self._held
        return is_newest and self._held > self._last_run_request and self.agent_state not in _AT_WORK

    def _user_message(self, event: MessageEvent) -> None:
        self.user_messages += 1
        self._user_messages = [*self._user_messages, event.id][-MOST_UNSEEN:]
        self.is_blocked = False
        self.unrecalled[event.id] = event.llm_message.text
        self._held = event.id if event.waits_for_run else -1
        self._finished, self.refinements, self.finish_result = False, 0, None
        self.wants_exit = event.llm_message.text.strip() == EXIT
        self.shows_images = any(isinstance(part, ImageContent) for part in event.llm_message.content)
        self.empty_replies = self.fruitless_replies = 0

    def _response(self, response_id: str, seen: int | None, metrics: MetricsSnapshot | None) -> None:
        if response_id != self._last_response_id:
            self.iterations += 1
            self.fruitless_replies += 1
            self._last_response_id = response_id
        self._seen = max(self._seen, -1 if seen is None else seen)
        if metrics is not None:
            self.metrics = metrics

    def _action(self, event: ActionEvent) -> None:
        self.unanswered[event.id] = event
        if event.awaits_confirmation:
            self.undecided[event.id] = event
        if event.source == "agent":
            self._response(event.llm_response_id, event.seen, event.metrics)
            self.empty_replies = 0
            if event.action is not None:
                self.fruitless_replies = 0

    def _answer(self, event: ObservationEvent | UserRejectObservation | AgentErrorEvent) -> None:
        if event.cause is None:
            return
        action = self.unanswered.pop(event.cause, None)
        self.undecided.pop(event.cause, None)
        if action is None or action.source != "agent":
            return
        finished = isinstance(event, ObservationEvent) and isinstance(event.observation, FinishObservation)
        if finished and isinstance(event, ObservationEvent):
            self.last_words = event.observation.text
        # A message that the model had not seen when it called finish is still to be answered.
        if finished and self._last_user_message <= (action.seen if action.seen is not None else action.id):
            self._finished = True
            self.finish_result = action.critic_result
            self._finishing_response = action.llm_response_id
            self._seen = max(self._seen, self._due)
        elif not (self._finished and action.llm_response_id == self._finishing_response):
            self._due = event.id

    def _request(self, event: ChangeAgentState) -> None:
        if event.agent_state in INTERRUPTING:
            self.last_interruption_id = event.id
        if event.agent_state is AgentState.RUNNING:
            self._last_run_request = event.id
        if event.agent_state in (AgentState.RUNNING, AgentState.USER_CONFIRMED):
            self.max_steps = event.max_steps
        if event.agent_state in INTERRUPTING | {AgentState.RUNNING}:
            self._requested_state = event.agent_state
            keeps_waiting = event.agent_state is AgentState.PAUSED and self.undecided
            if self.agent_state is AgentState.LOADING and not keeps_waiting:
                self._run_requested = event.agent_state is AgentState.RUNNING
                self.resumable = event.agent_state

    def _state_changed(self, event: AgentStateChanged) -> None:
        before, self.agent_state = self.agent_state, event.agent_state
        requested = self._requested_state  # one that was not heeded before a crash is heeded after it
        self._requested_state = None
        if event.agent_state in INTERRUPTING or event.agent_state is AgentState.ERROR:
            self.max_steps = None
        if event.agent_state is AgentState.LOADING and before is not AgentState.LOADING:
            if before is AgentState.AWAITING_USER_CONFIRMATION and self.limits.per_run:  # the run has ended
                self.limits.iteration_limit = self.iterations + self.limits.max_iterations
            self.resumable = (requested or AgentState.RUNNING) if before in _AT_WORK else before
        elif event.agent_state is AgentState.RUNNING:
            self.loop = None
            came_from = self.resumable if before is AgentState.LOADING else before
            if came_from not in _AT_WORK or self._run_requested:
                self._run_requested = False
                self.limits.extend(self.iterations, self.metrics.accumulated_cost)
                self.empty_replies = self.fruitless_replies = 0


UNDONE = "The conversation was taken back to this point, before the call had a result."


async def state_of_branch(log: Pages[AnyEvent], branches: Branches, leaf: int | None = None) -> ControllerState:
    """The state that the events of the branch alone make up; its limits mean nothing. Raises `EventStoreError`."""
    state = ControllerState(Limits(max_iterations=1))
    async for event in read_branch(log, branches, leaf):
        state.fold(event)
    return state


def opening_of(rewind: Rewind, state: ControllerState, prompt: SystemPromptEvent | None = None) -> list[AnyEvent]:
    """What is written together to go on behind the event that `rewind` names, whose branch has come to `state`.

    Calls that are open there are answered. `prompt` is what the agent is told where the branch does not say it. The
    agent waits for its user.
    """
    interrupted = ErrorClassification.INTERRUPTED
    answers = [AgentErrorEvent.answering(action, UNDONE, interrupted) for action in state.unanswered.values()]
    shown = [prompt] if prompt is not None and not state.has_system_prompt else []
    return [rewind, *shown, *answers, AgentStateChanged(agent_state=AgentState.AWAITING_USER_INPUT)]
