"""The transcript: a view's events as messages for a model, or as text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

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
from agent_core.events.messages import Message
from agent_core.events.serialization import AnyEvent

CHARACTERS_PER_TOKEN = 4
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


class Transcript:
    """The messages of events that a view has accepted: every answer belongs to a call that was added before it.

    `settled` only grows, and what is in it never changes: callers may cache what they derive from it. `held` is what
    was said since a call that still waits for its result; nothing may stand between the two. Neighbouring messages of
    the user are joined by `messages` only.
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
            case MessageEvent(source="agent", is_blank=True):
                return  # providers take no empty message; the nudge that follows says what happened
            case SystemPromptEvent() | MessageEvent() | CondensationSummaryEvent():
                self._say(event.to_llm_message())

    @property
    def batch(self) -> Sequence[ActionEvent]:
        """The calls at the end that wait for a result or for the rest of their batch."""
        return self._batch

    def abandon_batch(self) -> None:
        self._batch, self._answers = [], {}
        self.settled.extend(self.held)
        self.held = []

    def messages(self) -> list[Message]:
        """All messages as they may be sent now: without calls that wait for a result, and their batch."""
        return join_user_messages([*self.settled, *self.held])

    def _say(self, message: Message) -> None:
        (self.held if self._batch else self.settled).append(message)

    def _add_answer(self, event: AnswerEvent) -> None:
        if (direct := self._users.pop(event.cause or 0, None)) is not None:
            command, path = getattr(direct.action, "command", ""), getattr(direct.action, "path", "")
            shown = f"{direct.tool_name}: {command} {path}".strip()
            output = event.to_llm_message().text
            self._say(Message.user(f"[The user used a tool directly: {shown}]\nResult:\n{output}"))
            return
        self._answers[event.cause or 0] = event
        if len(self._batch) < self._batch[0].calls_in_response or len(self._answers) < len(self._batch):
            return
        calls = [action.tool_call for action in self._batch if action.tool_call is not None]
        self.settled.append(self._batch[0].to_llm_message().model_copy(update={"tool_calls": calls}))
        for action in self._batch:
            message = self._answers[action.id].to_llm_message()
            named = {"tool_call_id": action.tool_call_id, "name": action.tool_name}
            self.settled.append(message.model_copy(update=named))
        self.abandon_batch()


def is_view_event(event: AnyEvent) -> bool:
    """Whether a model is ever shown an event like this (an empty recall tells it nothing)."""
    return isinstance(event, ViewEvent) and not (isinstance(event, RecallObservation) and event.is_empty)


def join_user_messages(messages: Sequence[Message]) -> list[Message]:
    """The messages with neighbouring plain ones of the user made one."""
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


def facts_message(event: RecallObservation) -> Message | None:
    """What was recalled as a user's message, if anything; of the secrets those that came after the system message."""
    if event.recall_type == "workspace_context":
        sections = _workspace(event)
    else:
        sections = list(filter(None, [later_secrets(event.custom_secrets_descriptions)]))
    sections += [
        f'<EXTRA_INFO name="{known.name}" trigger="{known.trigger}">\n'
        f"It may or may not be relevant to the request.\n{known.content}\n</EXTRA_INFO>"
        for known in event.microagent_knowledge
    ]
    return Message.user("\n\n".join(sections)) if sections else None


def later_secrets(descriptions: Mapping[str, str]) -> str:
    """What a model is told of secrets that came after its system message."""
    if not descriptions:
        return ""
    lines = [f"- ${name}: {text}" if text else f"- ${name}" for name, text in descriptions.items()]
    return "\n".join(
        ["<SECRETS>", "More environment variables that are set for each command that names them:", *lines, "</SECRETS>"]
    )


def _workspace(event: RecallObservation) -> list[str]:
    lines = []
    if event.working_dir:
        lines.append(f"Working directory: {event.working_dir}")
    if event.repo_name:
        branch = f" (branch {event.repo_branch})" if event.repo_branch else ""
        lines.append(f"Repository: {event.repo_name}{branch} in {event.repo_directory or event.working_dir}")
    if event.date:
        lines.append(f"Date: {event.date} (UTC)")
    if event.additional_agent_instructions:
        lines.append(event.additional_agent_instructions)
    lines.extend(f"Port {port} of the sandbox is served at {host}" for host, port in event.runtime_hosts.items())
    sections = ["<WORKSPACE>\n" + "\n".join(lines) + "\n</WORKSPACE>"] if lines else []
    if event.repo_instructions:
        sections.append(f"<REPOSITORY_INSTRUCTIONS>\n{event.repo_instructions}\n</REPOSITORY_INSTRUCTIONS>")
    if event.conversation_instructions:
        sections.append(f"<INSTRUCTIONS>\n{event.conversation_instructions}\n</INSTRUCTIONS>")
    return sections


def as_text(event: ViewEvent) -> str:
    """What an event says, with who says it."""
    if isinstance(event, ActionEvent):
        call = event.tool_call.arguments if event.tool_call is not None else str(event.action)
        return f"{event.source} calls {event.tool_name} {call}\n{event.thought_text}".rstrip()
    if isinstance(event, RecallObservation):
        facts = facts_message(event)
        return f"facts: {facts.text if facts is not None else ''}"
    if isinstance(event, SystemPromptEvent):
        return f"system: {event.system_prompt.text}"
    message = event.to_llm_message()
    return f"{message.role}: {message.text}"


def tagged(texts: Iterable[str]) -> str:
    """Texts one after the other, each between marks."""
    return "\n".join(f"<EVENT>\n{text}\n</EVENT>" for text in texts)


def shortened(text: str, limit: int) -> str:
    """`text` cut in its middle to `limit` characters, saying so."""
    notice = "\n[… cut …]\n"
    if len(text) <= limit:
        return text
    if limit <= len(notice):
        return text[:limit]
    head = (limit - len(notice) + 1) // 2
    tail = limit - len(notice) - head
    return text[:head] + notice + text[len(text) - tail :]


def weight(event: ViewEvent) -> int:
    """Its size in characters, with the tools of a system prompt."""
    tools = len(json.dumps(event.tools)) if isinstance(event, SystemPromptEvent) and event.tools else 0
    return len(as_text(event)) + tools
