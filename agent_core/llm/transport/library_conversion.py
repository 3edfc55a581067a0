"""Between the client library's forms and ours."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from pydantic import SecretStr

from agent_core.llm.transport.exchange import CallDelta, Chunk
from agent_core.llm.transport.json_text import encoded


def plain(value: str | SecretStr) -> str:
    """The value, also of a secret."""
    return value.get_secret_value() if isinstance(value, SecretStr) else value


def keys_of_environment() -> list[str]:
    """Values of the environment that the library may have used as a key without our knowing."""
    return [value for name, value in os.environ.items() if re.search(r"(KEY|TOKEN|SECRET|PASSWORD)$", name.upper())]


def copied(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages or tools of our own, for a library that changes what it is given."""
    copies: list[dict[str, Any]] = orjson.loads(encoded(list(messages)))
    return copies


def chunk_of_library(piece: Any) -> Chunk:
    """A chunk of litellm's as one of ours."""
    usage = getattr(piece, "usage", None)
    choice = piece.choices[0] if piece.choices else None
    delta = getattr(choice, "delta", None)
    calls = tuple(
        CallDelta(index=call.index, id=call.id, name=call.function.name, arguments=call.function.arguments or "")
        for call in getattr(delta, "tool_calls", None) or ()
    )
    return Chunk(
        text=getattr(delta, "content", None) or "",
        reasoning=getattr(delta, "reasoning_content", None) or "",
        calls=calls,
        thinking_blocks=tuple(dict(block) for block in getattr(delta, "thinking_blocks", None) or ()),
        finish_reason=getattr(choice, "finish_reason", None),
        has_choice=choice is not None,
        usage=usage.model_dump() if usage is not None else None,
        model=getattr(piece, "model", None),
    )
