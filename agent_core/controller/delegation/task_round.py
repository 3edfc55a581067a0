"""How far a sub-agent is with one task, folded from its own log."""

from __future__ import annotations

from typing import Final

from agent_core.controller.account import metrics_of
from agent_core.events.control import AgentState, AgentStateChanged, RecallAction
from agent_core.events.llm_events import (
    ActionDecision,
    ActionEvent,
    AgentErrorEvent,
    AnswerEvent,
    MessageEvent,
    MetricsSnapshot,
    ObservationEvent,
    UserRejectObservation,
)
from agent_core.events.serialization import AnyEvent
from agent_core.tools.finish import FinishObservation
from agent_core.tools.subagents import TaskReport

_DONE: Final = frozenset({AgentState.FINISHED, AgentState.AWAITING_USER_INPUT})
_ENDED: Final = _DONE | {AgentState.PAUSED, AgentState.STOPPED, AgentState.REJECTED, AgentState.ERROR}
STOPPED: Final = "It was stopped before it was done."


class TaskRound:
    """One task, which is the message whose sender is `key`; takes the events in the order of their ids.

    Attributes:
        asked: id of that message; -1 while it is not in the log.
        metrics: what the sub-agent has cost so far, with all its tasks.
        undecided: the actions that wait for a user's word.
        rejections: how often such actions were refused during this task.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        self.asked = -1
        self.metrics = MetricsSnapshot()
        self.undecided: dict[int, ActionEvent] = {}
        self.rejections = 0
        self._result = ""
        self._thought = ""
        self._failure = ""
        self._state = AgentState.LOADING
        self._since = -1
        self._unread: set[int] = set()
        self._unanswered: set[int] = set()

    def fold(self, event: AnyEvent) -> None:
        """Take the next event into account."""
        match event:
            case MessageEvent(source="user"):
                self._unread.add(event.id)
                if event.sender == self.key and self.asked < 0:
                    self.asked, self._result, self._thought = event.id, "", ""
            case MessageEvent(source="agent"):
                self._result = event.llm_message.text.strip() or self._result
            case ActionEvent():
                self._thought = event.thought_text.strip() or self._thought
                self._unanswered.add(event.id)
                if event.awaits_confirmation:
                    self.undecided[event.id] = event
            case ObservationEvent() | UserRejectObservation() | AgentErrorEvent():
                self._answer(event)
            case RecallAction() if event.cause in self._unread:
                self._unread.discard(event.cause)
                self._state, self._since = AgentState.RUNNING, event.id  # it is about to be
            case ActionDecision():
                self.undecided.pop(event.cause, None)
                self.rejections += event.decision == "rejected"
            case AgentStateChanged() if event.agent_state is not AgentState.LOADING:
                self._state, self._since = event.agent_state, event.id
                self._failure = event.detail or event.reason
        self.metrics = metrics_of(event) or self.metrics

    def _answer(self, event: AnswerEvent) -> None:
        if event.cause is not None:
            self._unanswered.discard(event.cause)
            self.undecided.pop(event.cause, None)
        if isinstance(event, ObservationEvent) and isinstance(event.observation, FinishObservation):
            self._result = event.observation.text.strip() or self._result

    @property
    def waits_for_word(self) -> bool:
        """Whether its actions wait for a user's word."""
        return self._state is AgentState.AWAITING_USER_CONFIRMATION and bool(self.undecided) and not self._unread

    @property
    def has_ended(self) -> bool:
        """Whether the sub-agent does nothing more for this task by itself."""
        is_read = self._state is AgentState.ERROR or not self._unread
        has_rest = is_read and not self._unanswered  # what it was doing is to be in its log before it is let go of
        return 0 <= self.asked < self._since and self._state in _ENDED and has_rest

    @property
    def report(self) -> TaskReport:
        """What came of it, once it has ended."""
        if self._state in _DONE:
            return TaskReport(self._result)
        problem = (self._failure or "It failed.") if self._state is AgentState.ERROR else STOPPED
        return TaskReport(self._result or self._thought, problem)
