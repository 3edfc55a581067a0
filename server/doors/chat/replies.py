"""Answers in the form of OpenAI's chat completions, whole and in pieces."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any, Final

from agent_core.events.llm_events import TokenUsage
from server.doors.chat.requests import MODEL
from server.doors.chat.turn import Piece
from server.errors import refusal_body

DONE = "data: [DONE]\n\n"
AGENT_FAILED: Final = "agent_failed"
STILL_AT_WORK = ": the agent is at work\n\n"
"""A comment: it keeps the connection open through everything between here and the client."""


@dataclass(frozen=True, slots=True)
class ChatReply:
    """One answer of a conversation; `spent` is what it had used before."""

    conversation_id: str
    ident: str
    spent: tuple[int, int]
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, text: str, reasoning: str, usage: TokenUsage | None) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        if reasoning:
            message["reasoning_content"] = reasoning
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
        return {**self._head("chat.completion"), "choices": [choice], "usage": self._usage(usage)}

    def first(self) -> str:
        return self._chunk({"role": "assistant", "content": ""})

    def piece(self, piece: Piece) -> str:
        name = "content" if piece.channel == "content" else "reasoning_content"
        return self._chunk({name: piece.text})

    def last(self) -> str:
        return self._chunk({}, finish_reason="stop")

    def usage(self, usage: TokenUsage | None) -> str:
        return _data({**self._head("chat.completion.chunk"), "choices": [], "usage": self._usage(usage)})

    def _chunk(self, delta: dict[str, str], finish_reason: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}
        return _data({**self._head("chat.completion.chunk"), "choices": [choice]})

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.ident,
            "object": kind,
            "created": self.created,
            "model": MODEL,
            "conversation_id": self.conversation_id,
        }

    def _usage(self, usage: TokenUsage | None) -> dict[str, int]:
        before_in, before_out = self.spent
        prompt = max(0, usage.prompt_tokens - before_in) if usage is not None else 0
        answered = max(0, usage.completion_tokens - before_out) if usage is not None else 0
        return {"prompt_tokens": prompt, "completion_tokens": answered, "total_tokens": prompt + answered}


def error_chunk(message: str) -> str:
    """An error in the middle of a stream."""
    return _data(refusal_body(500, message, code=AGENT_FAILED))


def _data(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"
