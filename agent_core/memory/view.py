"""The view: the log as messages for a model, kept up to date event by event (agent-core 1.5, 5.2).

What it guarantees, whatever the log holds (crashes, interruptions, messages in between): a tool call is never shown
without exactly one result, a result never without its call, a batch of calls stays whole and its results follow in the
order of the calls. Adding an event costs the same however long the log is.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent_core.events.control import CondensationRequest, RecallObservation
from agent_core.events.llm_events import (
    ActionEvent,
    AgentErrorEvent,
    AnswerEvent,
    MessageEvent,
    ObservationEvent,
    SystemPromptEvent,
    UserRejectObservation,
)
from agent_core.events.messages import Message, TextContent
from agent_core.events.serialization import AnyEvent
from agent_core.memory.facts import facts_message

_ANSWERS = (ObservationEvent, UserRejectObservation, AgentErrorEvent)


class View:
    """The messages of a conversation.

    `settled` only ever grows, and what is in it never changes: callers may cache whatever they derive from its parts.
    Neighbouring messages of the user are joined when they are read (`messages`), not in here.
    """

    def __init__(self) -> None:
        self.settled: list[Message] = []
        self.wants_condensation = False
        self._batch: list[ActionEvent] = []
        self._answers: dict[int, AnswerEvent] = {}
        self.held: list[Message] = []
        self._user_commands: dict[int, str] = {}

    def add(self, event: AnyEvent) -> None:
        """Take the next event of the log into account."""
        match event:
            case ActionEvent(tool_call=None):
                self._add_user_command(event)
            case ActionEvent():
                self._add_call(event)
            case ObservationEvent() | UserRejectObservation() | AgentErrorEvent():
                self._add_answer(event)
            case SystemPromptEvent():
                self._say(_system_message(event))
            case MessageEvent():
                self._close_batch_before(event)
                self._say(event.to_llm_message())
            case RecallObservation():
                if (message := facts_message(event)) is not None:
                    self._say(message)
            case CondensationRequest():
                self.wants_condensation = True

    def messages(self) -> list[Message]:
        """All messages as they may be sent now: calls that still wait for a result, and their batch, are left out."""
        return join_user_messages([*self.settled, *self.held])

    def _say(self, message: Message) -> None:
        # Between a call and its result nothing may stand: a message that comes while tools run follows the results.
        (self.held if self._batch else self.settled).append(message)

    def _add_call(self, event: ActionEvent) -> None:
        if self._batch and self._batch[0].llm_response_id != event.llm_response_id:
            self._drop_unanswered()
        self._batch.append(event)

    def _add_answer(self, event: AnswerEvent) -> None:
        cause = event.cause
        if cause is None:
            return
        if cause in self._user_commands:
            command = self._user_commands.pop(cause)
            self._say(_user_command_message(command, _answer_text(event)))
        elif any(action.id == cause for action in self._batch) and cause not in self._answers:
            self._answers[cause] = event
            self._settle_if_complete()

    def _settle_if_complete(self) -> None:
        first = self._batch[0]
        if len(self._batch) < first.calls_in_response or len(self._answers) < len(self._batch):
            return
        self.settled.append(_assistant_message(self._batch))
        for action in self._batch:
            answer = self._answers[action.id]
            message = answer.to_llm_message()
            self.settled.append(
                message.model_copy(update={"tool_call_id": action.tool_call_id, "name": action.tool_name})
            )
        self._release()

    def _close_batch_before(self, event: MessageEvent) -> None:
        """An agent's message after unanswered calls means that they will never be answered."""
        if self._batch and event.llm_message.role == "assistant":
            self._drop_unanswered()

    def _drop_unanswered(self) -> None:
        self._release()

    def _release(self) -> None:
        self._batch, self._answers = [], {}
        self.settled.extend(self.held)
        self.held = []

    def _add_user_command(self, event: ActionEvent) -> None:
        command = getattr(event.action, "command", "")
        path = getattr(event.action, "path", "")
        self._user_commands[event.id] = f"{event.tool_name}: {command} {path}".strip()


def join_user_messages(messages: Sequence[Message]) -> list[Message]:
    """`messages` with neighbouring plain messages of the user made one (agent-core 1.5, rule 3)."""
    out: list[Message] = []
    for message in messages:
        if message.role == "user" and out and out[-1].role == "user":
            out[-1] = out[-1].model_copy(update={"content": [*out[-1].content, *message.content]})
        else:
            out.append(message)
    return out


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


def _answer_text(answer: AnswerEvent) -> str:
    return answer.to_llm_message().text


def _user_command_message(command: str, output: str) -> Message:
    return Message(
        role="user",
        content=[TextContent(text=f"[The user used a tool directly: {command}]\nResult:\n{output}")],
    )
