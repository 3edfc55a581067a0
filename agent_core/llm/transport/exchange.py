"""One exchange with a model, as every transport sees it: the request, the pieces of the answer, and their JSON."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol
from weakref import ref

import orjson
from pydantic import SecretStr

from agent_core.llm.response import LLMResponse
from agent_core.spelling import spelled


@spelled
@dataclass(frozen=True, slots=True, weakref_slot=True)
class CallContext:
    """Values of one conversation that go with a call but not into the shared configuration.

    `prompt_cache_key` is the key under which a provider may cache the prompt: the conversation's id, for a sub-agent
    its parent's. `session_id` stands in the log of calls; `on_response` hears of every finished call with its usage id,
    and of what was spent on one that broke off, whose message is empty. It may hear of them in other threads. `agent`,
    `user_id` and `tags` are told to providers that are to get metadata (see `LLMConfig.request_metadata`).
    """

    prompt_cache_key: str = ""
    session_id: str = ""
    agent: str = ""
    user_id: str = ""
    tags: tuple[str, ...] = ()
    on_response: Callable[[LLMResponse, str], object] | None = None

    def counted_as(self, usage_id: str) -> CallContext:
        listener = self.on_response
        return replace(self, on_response=None if listener is None else lambda response, _: listener(response, usage_id))


_made_for: ContextVar[ref[CallContext] | None] = ContextVar("calls_made_for", default=None)
"""Weakly: a connection that is opened within a call and kept keeps the variables of then, and with them a conversation
that was deleted long ago."""


@contextmanager
def calls_made_for(context: CallContext) -> Iterator[None]:
    """Within this, calls that are given no context have this one: those of a program's own critic, for one.

    Threads have it that copy the context of whoever starts them.
    """
    token = _made_for.set(ref(context))
    try:
        yield
    finally:
        _made_for.reset(token)


def present_context() -> CallContext:
    """What a call is made for that is given no context."""
    made_for = _made_for.get()
    return (made_for and made_for()) or CallContext()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Endpoint of a model; hashable. `options` are settings of one provider alone, by litellm's names."""

    model: str
    base_url: str | None = None
    api_key: SecretStr | None = None
    api_version: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    drop_params: bool = True
    modify_params: bool = True
    options: tuple[tuple[str, str | SecretStr], ...] = ()

    @property
    def label(self) -> str:
        """The model, and the server where one is configured, for messages to people."""
        return f"{self.model} at {self.base_url}" if self.base_url else self.model


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """One request: rendered messages (no transport changes them), function-tool schemas, options by OpenAI's names."""

    endpoint: Endpoint
    messages: Sequence[dict[str, Any]]
    tools: Sequence[dict[str, Any]] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    timeout: float = 300.0
    context: CallContext = field(default_factory=CallContext)
    api: Literal["chat", "responses"] = "chat"


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A piece of a tool call, any of whose fields may be missing. `item_id` is a second id of the Responses API."""

    index: int | None = None
    id: str | None = None
    name: str | None = None
    arguments: str = ""
    item_id: str | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of an answer; an empty one says only that the server is alive.

    `usage` is the provider's usage object, `cost` what it says that the call cost (US dollars); `has_choice`: it sent
    one.
    """

    text: str = ""
    reasoning: str = ""
    calls: tuple[CallDelta, ...] = ()
    thinking_blocks: tuple[dict[str, Any], ...] = ()
    finish_reason: str | None = None
    has_choice: bool = False
    usage: Mapping[str, Any] | None = None
    model: str | None = None
    cost: float | None = None

    @property
    def says_something(self) -> bool:
        return bool(self.text or self.reasoning or self.calls or self.thinking_blocks or self.finish_reason)


class Transport(Protocol):
    """A way to a model."""

    async def prepare(self, endpoint: Endpoint) -> None:
        """Do what takes long the first time (importing a library, reading a file), outside of any call's time limit."""

    def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        """Ask, and yield the answer's pieces as they come; ends only when it is complete, or raises `LLMError`.

        Closing the generator early closes the connection.
        """


def encoded(value: Any) -> bytes:
    """The value as JSON; half characters (lone surrogates), which no server takes, become question marks."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def canonical(value: Any) -> bytes:
    """The value as JSON that is the same for equal values: the keys of objects stand in order."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return json.dumps(value, ensure_ascii=False, sort_keys=True).encode("utf-8", "replace")


def whole_characters(text: str) -> str:
    """The text with halves of characters that follow each other made whole; single ones become U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def is_half(character: str) -> bool:
    """Whether it is the first half of a character (a high surrogate), as a stream may be cut between both."""
    return "\ud800" <= character <= "\udbff"
