"""The view: what a model is shown of the log, kept up to date event by event.

Whatever the log holds, a tool call is never shown without exactly one result, a result never without its call, a batch
of calls stays whole and its results follow in the order of the calls. Adding an event costs the same however long the
log is; only a condensation looks at the whole view.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, overload

from agent_core.errors import NoCondensationError
from agent_core.events.branches import active_branch
from agent_core.events.control import Condensation, CondensationRequest, ConversationError, HookExecutionEvent, Recorded
from agent_core.events.llm_events import (
    ActionEvent,
    AgentErrorEvent,
    AnswerEvent,
    CondensationSummaryEvent,
    MessageEvent,
    ObservationEvent,
    SystemPromptEvent,
    UserRejectObservation,
)
from agent_core.events.messages import Message, TextContent
from agent_core.events.serialization import AnyEvent
from agent_core.memory.cut_positions import CutPositions, belongs_to_batch, is_whole, together
from agent_core.memory.transcript import CHARACTERS_PER_TOKEN, Transcript, ViewEvent, is_view_event, weight
from agent_core.spelling import spelled

HIDDEN_SOON = 200
"""Hooks judge a message before the agent goes on: a refused one is among so many of the newest events."""
MAX_SHARED = 32
"""How many system prompts and sets of tools are kept: equal ones of many conversations share one object."""


@dataclass(slots=True)
class Attempts:
    """Failed attempts to shorten a view, shared by the views made from it.

    `failed_at` is how long the view was when one failed; 0: none did since the last condensation.
    """

    failed_at: int = 0


@spelled
class View:
    """The events that a model is shown, in order, and their messages.

    Attributes:
        events: an action only together with its batch, an answer only after its action; calls at the end may still
            wait.
        wants_condensation: whether a request for one is newer than the last one, and was not in vain.
        is_too_long: whether one of these requests says that the model did not take the view.
        transcript: the messages; another object after a condensation, the same one otherwise.
        seen: id of the newest event that the model was shown for one of its answers; -1 where no answer says so.
    """

    def __init__(
        self,
        events: Iterable[ViewEvent] = (),
        *,
        wants_condensation: bool = False,
        attempts: Attempts | None = None,
        seen: int = -1,
        opening: Opening | None = None,
    ) -> None:
        """`opening` is what the events began with before some of them were left out."""
        self.events: list[ViewEvent] = list(events)
        self.attempts = attempts or Attempts()
        self.wants_condensation = wants_condensation
        self.is_too_long = False
        self.seen = seen
        self._direct: dict[int, ActionEvent] = {}
        self._batch: list[ActionEvent] = []
        self._waiting: set[int] = set()
        self._recorded: list[Recorded] = []
        self._opening = opening or Opening()
        for event in () if opening else self.events:
            self._opening.note(event)
        self._weighed = self._weight = 0
        self._read()

    def __len__(self) -> int:
        return len(self.events)

    @overload
    def __getitem__(self, index: int) -> ViewEvent: ...
    @overload
    def __getitem__(self, index: slice) -> list[ViewEvent]: ...
    def __getitem__(self, index: int | slice) -> ViewEvent | list[ViewEvent]:
        return self.events[index]

    @classmethod
    def from_log(cls, log: Iterable[AnyEvent]) -> View:
        """The view of a whole log, in the order of its ids; what a rewind undid is not in it."""
        view = cls()
        for event in active_branch(log):
            view.add(event)
        return view

    @classmethod
    def from_events(cls, events: Iterable[AnyEvent]) -> View:
        return cls.from_log(events)

    @property
    def unhandled_condensation_request(self) -> bool:
        return self.wants_condensation

    def add(self, event: AnyEvent) -> None:
        if isinstance(event, ActionEvent | MessageEvent) and event.seen is not None:
            self.seen = max(self.seen, event.seen)
        match event:
            case Condensation():
                self._condense(event)
            case HookExecutionEvent(blocked=True) if event.message_id is not None:
                self._hide(event.message_id)
            case CondensationRequest():
                self.wants_condensation = True
                self.is_too_long = self.is_too_long or event.is_of_overflow
            case ConversationError() if event.code == NoCondensationError.__name__:
                # In vain; but the model may be another one when it is asked the next time.
                self.wants_condensation = self.is_too_long = False
            case ActionEvent(tool_call=None, hidden=True):
                return  # its user wants the result for themselves
            case ActionEvent(tool_call=None):
                self._direct[event.id] = event  # the user's own; shown once it is answered
            case ActionEvent():
                self._add_call(event)
            case ObservationEvent() | UserRejectObservation() | AgentErrorEvent():
                self._add_answer(event)
            case MessageEvent() if event.llm_message.role == "assistant":
                self._abandon_batch()  # an agent that speaks after unanswered calls does not get their answers any more
                self._show(event)
            case SystemPromptEvent():
                schemas = shared_tools(event.tools)
                self._show(event.model_copy(update={"system_prompt": _text(event.system_prompt), "tools": schemas}))
                recorded, self._recorded = self._recorded, []
                for told in chain.from_iterable(one.told for one in recorded):
                    self.add(told)
            case Recorded():
                self._recorded.append(event)  # until the prompt, which stands behind them in the log
            case _ if is_view_event(event):
                self._show(event)  # type: ignore[arg-type] # which is what the line above asks

    def messages(self) -> list[Message]:
        return self.transcript.messages()

    def unread(self) -> frozenset[int]:
        """The ids of the user's messages that no answer of the model has seen: no condenser may forget them."""
        from_user = (event for event in self.events if isinstance(event, MessageEvent) and event.source == "user")
        return frozenset(event.id for event in from_user if 0 <= self.seen < event.id)

    def token_estimate(self) -> int:
        """About how many tokens it is, with the tools; costs a look at what is new since the last time."""
        self._weight += sum(map(weight, self.events[self._weighed :]))
        self._weighed = len(self.events)
        return self._weight // CHARACTERS_PER_TOKEN

    def cut_positions(self) -> CutPositions:
        """Costs a look at the whole view."""
        return CutPositions(self.events)

    @property
    def manipulation_indices(self) -> CutPositions:
        return self.cut_positions()

    def showing(self, events: Iterable[ViewEvent]) -> View:
        """Another view of the same requests that shows these events instead (masked ones, say)."""
        return View(
            events,
            wants_condensation=self.wants_condensation,
            attempts=self.attempts,
            seen=self.seen,
            opening=self._opening,
        )

    def _show(self, event: ViewEvent) -> None:
        self._opening.note(event)
        self.events.append(event)
        self.transcript.add(event)

    def _hide(self, message_id: int) -> None:
        if any(event.id == message_id for event in self.events[-HIDDEN_SOON:]):
            self.events = [event for event in self.events if event.id != message_id]
            self._opening.withdraw(message_id, self.events)
            self._read()

    def _add_call(self, event: ActionEvent) -> None:
        if self._batch and not belongs_to_batch(event, self._batch):
            self._abandon_batch()
        self._batch.append(event)
        self._waiting.add(event.id)
        self._show(event)

    def _add_answer(self, event: AnswerEvent) -> None:
        cause = event.cause
        if cause is None:  # an error that only says the call's own id
            waiting = (call for call in self._batch if call.id in self._waiting)
            cause = next((call.id for call in waiting if call.tool_call_id == event.tool_call_id), None)
            if cause is None:
                return
            event = event.model_copy(update={"cause": cause})
        if (direct := self._direct.pop(cause, None)) is not None:
            self._show(direct)
            self._show(event)
        elif cause in self._waiting:  # the first answer counts, another one is not shown
            self._waiting.remove(cause)
            self._show(event)
            if not self._waiting and is_whole(self._batch):
                self._batch = []

    def _abandon_batch(self) -> None:
        if self._batch:
            calls = {event.id for event in self._batch}
            self.events = [event for event in self.events if event.id not in calls and event.cause not in calls]
            self._batch, self._waiting = [], set()
            self._weighed = self._weight = 0
            self.transcript.abandon_batch()

    def _condense(self, event: Condensation) -> None:
        self.wants_condensation = self.is_too_long = False
        self.attempts.failed_at = 0
        forgotten = together(self.events, set(event.forgotten_event_ids))
        self.events = [one for one in self.events if one.id not in forgotten]
        if event.summary is not None and event.summary_offset is not None:
            summary = CondensationSummaryEvent(id=event.id, timestamp=event.timestamp, summary=event.summary)
            cuts = self.cut_positions()
            try:
                place = cuts.find_next(min(event.summary_offset, len(self.events)))
            except ValueError:  # calls at the end wait for their answers: before them
                place = max(cuts)
            self.events.insert(place, summary)
        self._read()

    def _read(self) -> None:
        self._weighed = self._weight = 0
        self.transcript = Transcript(self._opening.before(self.events))
        self._batch = list(self.transcript.batch)
        answered = {event.cause for event in self.events}
        self._waiting = {event.id for event in self._batch if event.id not in answered}


class Opening:
    """The system prompt and the user's first message. A summary stands for the latter, nothing for the prompt."""

    def __init__(self) -> None:
        self._prompt: SystemPromptEvent | None = None
        self._user_message: MessageEvent | None = None

    def note(self, event: ViewEvent) -> None:
        match event:
            case SystemPromptEvent() if self._prompt is None:
                self._prompt = event
            case MessageEvent(source="user") if self._user_message is None:
                self._user_message = event

    def withdraw(self, message_id: int, left: Sequence[ViewEvent]) -> None:
        """Take back this message; `left` are the events without it."""
        if self._user_message is not None and self._user_message.id == message_id:
            from_user = (event for event in left if isinstance(event, MessageEvent) and event.source == "user")
            self._user_message = next(from_user, None)

    def before(self, events: Sequence[ViewEvent]) -> Sequence[ViewEvent]:
        message = self._user_message
        if message is not None and any(
            isinstance(one, CondensationSummaryEvent) or one.id == message.id for one in events
        ):
            message = None
        has_prompt = any(isinstance(event, SystemPromptEvent) for event in events)
        prompt = None if has_prompt else self._prompt
        if prompt is None and message is None:
            return events
        place = 1 if events and isinstance(events[0], SystemPromptEvent) else 0
        first = [one for one in (prompt, message) if one is not None]
        return [*events[:place], *first, *events[place:]]


def shared_tools(schemas: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Equal schemas of tools, those that were seen first; not to be changed."""
    return _tools(json.dumps(schemas))


@lru_cache(maxsize=MAX_SHARED)
def _text(content: TextContent) -> TextContent:
    return content


@lru_cache(maxsize=MAX_SHARED)
def _tools(tools: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(tools)
    return found
