"""Responses of model calls, and their kinds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from agent_core.errors import LLMError
from agent_core.events.llm_events import MetricsSnapshot, TokenUsage
from agent_core.events.messages import Message
from agent_core.spelling import spelled

_NOTHING = MetricsSnapshot()


@spelled
@dataclass(frozen=True, slots=True)
class LLMResponse:
    """A complete answer.

    `id` is unique (ours, not the provider's, which may repeat), and that of the answer's deltas; `usage` is the
    provider's or an estimate (characters / 4); `cost` US dollars, None without a known price; `latency` seconds of the
    successful attempt, `first_token_seconds` those until its first piece came; `finish_reason` the provider's
    (``stop``, ``tool_calls``, ``length``); `model` the configured model; `metrics` what the calls of that model have
    cost by now, this one included.
    """

    message: Message
    id: str
    usage: TokenUsage
    cost: float | None
    latency: float
    finish_reason: str
    model: str
    metrics: MetricsSnapshot = _NOTHING
    first_token_seconds: float = 0.0

    @property
    def raw_response(self) -> dict[str, Any]:
        """The answer in the form of OpenAI's chat completions, put together from what was streamed."""
        message: dict[str, Any] = {"role": "assistant", "content": self.message.text or None}
        if self.message.reasoning_content:
            message["reasoning_content"] = self.message.reasoning_content
        if self.message.tool_calls:
            message["tool_calls"] = [
                {"id": one.id, "type": "function", "function": {"name": one.name, "arguments": one.arguments}}
                for one in self.message.tool_calls
            ]
        counts = {"prompt_tokens": self.usage.prompt_tokens, "completion_tokens": self.usage.completion_tokens}
        return {
            "id": self.id,
            "object": "chat.completion",
            "model": self.model,
            "choices": [{"index": 0, "message": message, "finish_reason": self.finish_reason}],
            "usage": {**counts, "total_tokens": sum(counts.values())},
        }


@spelled
@dataclass(frozen=True, slots=True)
class RetryNotice:
    """An attempt (counted from 1, of `max_attempts` in all) failed and will be repeated after a wait."""

    attempt: int
    max_attempts: int
    wait_seconds: float
    error: LLMError


class ResponseKind(StrEnum):
    """Kinds of answers, in the order in which they take precedence."""

    TOOL_CALLS = "tool_calls"
    CONTENT = "content"
    REASONING_ONLY = "reasoning_only"
    EMPTY = "empty"


def classify(message: Message) -> ResponseKind:
    """The kind of an assistant message: calls before text, text before bare reasoning."""
    if message.tool_calls:
        return ResponseKind.TOOL_CALLS
    if message.text.strip():
        return ResponseKind.CONTENT
    if message.thinking_blocks or (message.reasoning_content or "").strip():
        return ResponseKind.REASONING_ONLY
    return ResponseKind.EMPTY
