"""The transcript: a view's events as messages for a model, or as text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, overload

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
from agent_core.llm.render import cut_middle

CHARACTERS_PER_TOKEN = 4
_CUT = "\n[… cut …]\n"
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
    was said since a call that still waits for its result; nothing may stand between the two. `batch` are the calls at
    the end that wait for a result or for the rest of their batch. Neighbouring messages of the user are joined by
    `messages` only.
    """

    def __init__(self, events: Iterable[ViewEvent] = ()) -> None:
        self.settled: list[Message] = []
        self.pending: list[Message] = []
        self.batch: list[ActionEvent] = []
        self._answers: dict[int, AnswerEvent] = {}
        self._users: dict[int, ActionEvent] = {}
        for event in events:
            self.add(event)

    def add(self, event: ViewEvent) -> None:
        match event:
            case ActionEvent(tool_call=None):
                self._users[event.id] = event
            case ActionEvent():
                self.batch.append(event)
            case ObservationEvent() | UserRejectObservation() | AgentErrorEvent():
                self._add_answer(event)
            case RecallObservation():
                if (message := facts_message(event)) is not None:
                    self._say(message)
            case MessageEvent(source="agent", is_blank=True):
                return  # providers take no empty message; the nudge that follows says what happened
            case SystemPromptEvent() | MessageEvent() | CondensationSummaryEvent():
                self._say(event.to_llm_message())

    def abandon_batch(self) -> None:
        self.batch, self._answers = [], {}
        self.settled.extend(self.pending)
        self.pending = []

    def messages(self) -> list[Message]:
        """All messages as they may be sent now: without calls that wait for a result, and their batch."""
        return join_user_messages([*self.settled, *self.pending])

    def _say(self, message: Message) -> None:
        (self.pending if self.batch else self.settled).append(message)

    def _add_answer(self, event: AnswerEvent) -> None:
        if (direct := self._users.pop(event.cause or 0, None)) is not None:
            command, path = getattr(direct.action, "command", ""), getattr(direct.action, "path", "")
            shown = f"{direct.tool_name}: {command} {path}".strip()
            output = event.to_llm_message().text
            told = "The user used a tool directly" if direct.source == "user" else "Done when the workspace was set up"
            self._say(Message.user(f"[{told}: {shown}]\nResult:\n{output}"))
            return
        self._answers[event.cause or 0] = event
        if len(self.batch) < self.batch[0].calls_in_response or len(self._answers) < len(self.batch):
            return
        message = self.batch[0].to_llm_message()
        if len(self.batch) > 1:
            calls = [action.tool_call for action in self.batch if action.tool_call is not None]
            message = message.model_copy(update={"tool_calls": calls})
        self.settled.append(message)
        for action in self.batch:
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
    sections: list[str] = []
    if event.recall_type == "workspace_context":
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
        if lines:
            sections.append("<WORKSPACE>\n" + "\n".join(lines) + "\n</WORKSPACE>")
        if event.repo_instructions:
            sections.append(f"<REPOSITORY_INSTRUCTIONS>\n{event.repo_instructions}\n</REPOSITORY_INSTRUCTIONS>")
        if event.conversation_instructions:
            sections.append(f"<INSTRUCTIONS>\n{event.conversation_instructions}\n</INSTRUCTIONS>")
    elif secrets := later_secrets(event.custom_secrets_descriptions):
        sections.append(secrets)
    sections += [
        f'<EXTRA_INFO name="{known.name}" trigger="{known.trigger}">\n'
        f"It may or may not be relevant to the request.\n{known.content}\n</EXTRA_INFO>"
        if known.trigger
        else f'<EXTRA_INFO name="{known.name}">\nFrom now on this is always to be followed.\n{known.content}\n'
        "</EXTRA_INFO>"
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
    return text[:limit] if limit <= len(_CUT) else cut_middle(text, limit, _CUT)


def weight(event: ViewEvent) -> int:
    """Its size in characters, with the tools of a system prompt."""
    tools = len(json.dumps(event.tools)) if isinstance(event, SystemPromptEvent) and event.tools else 0
    return len(as_text(event)) + tools


class Prefix(Sequence[dict[str, Any]]):
    """The first so many of `items`, a list that only grows: it stays the same, and costs nothing to make."""

    def __init__(self, items: list[dict[str, Any]]) -> None:
        self.items = items
        self._count = len(items)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return islice(self.items, self._count)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(index, slice):
            return [self.items[at] for at in range(*index.indices(self._count))]
        return self.items[range(self._count)[index]]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment] # as a list's


class PromptCache:
    """Renders what a transcript has settled exactly once, for one `render` function (one model).

    Another transcript, as after a condensation, is rendered anew. Neighbouring messages of the user are joined.
    """

    def __init__(self, render: Callable[[Message], dict[str, Any]]) -> None:
        self._render = render
        self._transcript: Transcript | None = None
        self._forget()

    def _forget(self) -> None:
        self._rendered: list[dict[str, Any]] = []
        self._last: Message | None = None
        self._seen = 0

    def prompt(self, transcript: Transcript) -> Sequence[dict[str, Any]]:
        """All of its messages in wire form; shared, so nobody may change them."""
        self.render_settled(transcript)
        if not transcript.pending:
            return Prefix(self._rendered)
        prompt, tail = list(self._rendered), list(transcript.pending)
        if self._last is not None and is_plain(self._last):
            tail.insert(0, self._last)
            prompt.pop()
        prompt.extend(self._render(message) for message in join_user_messages(tail))
        return prompt

    def render_settled(self, transcript: Transcript) -> None:
        """Render what it has settled since the last call: a long log is rendered piece by piece."""
        if transcript is not self._transcript:
            self._transcript = transcript
            self._forget()
        for message in transcript.settled[self._seen :]:
            if self._last is not None and is_plain(message) and is_plain(self._last):
                self._rendered = self._rendered[:-1]  # a list of its own: prompts that were given out stay as they are
                message = join_user_messages([self._last, message])[0]
            rendered = self._render(message)
            if message.role == "system" and isinstance(rendered.get("content"), str):
                rendered["content"] = _shared_text(rendered["content"])
            self._rendered.append(rendered)
            self._last = message
        self._seen = len(transcript.settled)


@lru_cache(maxsize=32)
def _shared_text(text: str) -> str:
    """An equal text, the one that was seen first: many conversations have one system prompt."""
    return text
