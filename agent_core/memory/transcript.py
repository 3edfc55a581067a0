"""The transcript: a view's events as messages for a model, kept up to date event by event."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agent_core.events.control import RecallObservation
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
from agent_core.memory.facts import facts_message

ViewEvent = (
    SystemPromptEvent
    | MessageEvent
    | ActionEvent
    | ObservationEvent
    | UserRejectObservation
    | AgentErrorEvent
    | RecallObservation
    | CondensationSummaryEvent
)
"""What a model is shown, in one form or another."""


class Transcript:
    """The messages of events that a view has accepted: every answer belongs to a call that was added before it.

    `settled` only ever grows, and what is in it never changes: callers may cache whatever they derive from its parts.
    `held` is what was said since a call that still waits for its result; nothing may stand between the two.
    Neighbouring messages of the user are joined when they are read (`messages`), not in here.
    """

    def __init__(self, events: Iterable[ViewEvent] = ()) -> None:
        self.settled: list[Message] = []
        self.held: list[Message] = []
        self._batch: list[ActionEvent] = []
        self._answers: dict[int, AnswerEvent] = {}
        self._users: dict[int, ActionEvent] = {}
        for event in events:
            self.add(event)

    def add(self, event: ViewEvent) -> None:
        """Take the view's next event into account."""
        match event:
            case ActionEvent(tool_call=None):
                self._users[event.id] = event
            case ActionEvent():
                self._batch.append(event)
            case ObservationEvent() | UserRejectObservation() | AgentErrorEvent():
                self._add_answer(event)
            case RecallObservation():
                if (message := facts_message(event)) is not None:
                    self._say(message)
            case SystemPromptEvent():
                self._say(_system_message(event))
            case MessageEvent(source="agent", is_blank=True):
                return  # providers take no empty message; the nudge that follows says what happened
            case MessageEvent() | CondensationSummaryEvent():
                self._say(event.to_llm_message())

    @property
    def batch(self) -> Sequence[ActionEvent]:
        """The calls at the end that still wait, for a result or for the rest of their batch."""
        return self._batch

    def abandon_batch(self) -> None:
        """Leave out the calls that were not answered, with their batch: they never will be."""
        self._batch, self._answers = [], {}
        self.settled.extend(self.held)
        self.held = []

    def messages(self) -> list[Message]:
        """All messages as they may be sent now: calls that still wait for a result, and their batch, are left out."""
        return join_user_messages([*self.settled, *self.held])

    def _say(self, message: Message) -> None:
        (self.held if self._batch else self.settled).append(message)

    def _add_answer(self, event: AnswerEvent) -> None:
        if (typed := self._users.pop(event.cause or 0, None)) is not None:
            self._say(_user_command_message(typed, event))
            return
        self._answers[event.cause or 0] = event
        if len(self._batch) < self._batch[0].calls_in_response or len(self._answers) < len(self._batch):
            return
        self.settled.append(_assistant_message(self._batch))
        for action in self._batch:
            message = self._answers[action.id].to_llm_message()
            named = {"tool_call_id": action.tool_call_id, "name": action.tool_name}
            self.settled.append(message.model_copy(update=named))
        self.abandon_batch()


def join_user_messages(messages: Sequence[Message]) -> list[Message]:
    """`messages` with neighbouring plain messages of the user made one (rule 3)."""
    out: list[Message] = []
    for message in messages:
        if out and is_plain(message) and is_plain(out[-1]):
            out[-1] = out[-1].model_copy(update={"content": [*out[-1].content, *message.content]})
        else:
            out.append(message)
    return out


def is_plain(message: Message) -> bool:
    """Whether it is a message of the user with nothing but content."""
    return message.role == "user" and not (message.tool_calls or message.tool_call_id or message.name)


def _system_message(event: SystemPromptEvent) -> Message:
    static = event.system_prompt.model_copy(update={"cache_prompt": True})
    return Message(role="system", content=[static, event.dynamic_context] if event.dynamic_context else [static])


def _assistant_message(batch: Sequence[ActionEvent]) -> Message:
    first = batch[0]
    return Message(
        role="assistant",
        content=list(first.thought) if first.thought_text.strip() else [],
        tool_calls=[action.tool_call for action in batch if action.tool_call is not None],
        reasoning_content=first.reasoning_content,
        thinking_blocks=first.thinking_blocks,
    )


def _user_command_message(typed: ActionEvent, answer: AnswerEvent) -> Message:
    command, path = getattr(typed.action, "command", ""), getattr(typed.action, "path", "")
    shown = f"{typed.tool_name}: {command} {path}".strip()
    output = answer.to_llm_message().text
    return Message(
        role="user",
        content=[TextContent(text=f"[The user used a tool directly: {shown}]\nResult:\n{output}")],
    )


def is_view_event(event: AnyEvent) -> bool:
    """Whether a model is ever shown an event like this (an empty recall tells it nothing)."""
    return isinstance(event, ViewEvent) and not (isinstance(event, RecallObservation) and event.is_empty)
