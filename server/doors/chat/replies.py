"""Answers in the form of OpenAI's chat completions, whole and in pieces."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any, Final

from agent_core.events.llm_events import TokenUsage
from server.doors.chat.requests import MODEL
from server.doors.chat.turn import Piece

DONE = "data: [DONE]\n\n"
_KINDS: Final = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
_CODES: Final = {401: "invalid_api_key", 429: "rate_limit_exceeded"}
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


def refusal_body(status: int, message: str, *, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """An error as OpenAI's clients read it, with the kind, and where there is none the code, of such a status."""
    kind = _KINDS.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code or _CODES.get(status)}}


def error_chunk(message: str) -> str:
    """An error in the middle of a stream."""
    return _data(refusal_body(500, message, code=AGENT_FAILED))


def _data(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"
