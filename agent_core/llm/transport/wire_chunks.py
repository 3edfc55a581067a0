"""Chunks and errors of the OpenAI wire form as ours, whatever the types that a server puts into them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from agent_core.errors import LLMError
from agent_core.llm.transport.exchange import CallDelta, Chunk, Endpoint
from agent_core.llm.transport.failures import from_status
from agent_core.llm.transport.json_text import encoded


def chunk_of(value: Mapping[str, Any], part: str) -> Chunk:
    """One chunk (`part` "delta") or one whole answer ("message"); of several choices the first.

    Some servers stream one chunk that has the whole answer.
    """
    usage = value.get("usage")
    usage = usage if isinstance(usage, dict) else None
    choice = _first_choice(value.get("choices"))
    said = (choice.get(part), choice.get("message")) if choice else ()
    delta = next((one for one in said if isinstance(one, dict)), {})
    model = value.get("model")
    reason = choice.get("finish_reason") if choice else None
    return Chunk(
        text=_text(delta.get("content")) or _text(delta.get("refusal")),
        reasoning=_text(delta.get("reasoning_content") or delta.get("reasoning")),
        thinking_blocks=tuple(_blocks(delta.get("thinking_blocks"))),
        calls=tuple(_calls(delta)),
        finish_reason=str(reason) if reason and reason != "null" else None,
        has_choice=choice is not None,
        usage=usage,
        model=model if isinstance(model, str) else None,
        cost=money(usage.get("cost")) if usage else None,
    )


def money(value: Any) -> float | None:
    """An amount that can be added up; None for anything else (nothing, a text, less than nothing, infinity)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    amount = float(value)
    return amount if math.isfinite(amount) and amount >= 0 else None


def _first_choice(choices: Any) -> dict[str, Any] | None:
    if not isinstance(choices, list):
        return None
    return next((one for one in choices if isinstance(one, dict) and one.get("index") in (0, None, "0")), None)


def _text(content: Any) -> str:
    """Text content, also where a server sends it in parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(part for part in parts if isinstance(part, str))
    return ""


def _blocks(blocks: Any) -> Iterator[dict[str, Any]]:
    """Signed thoughts, which proxies of models that want them back pass on."""
    for block in blocks if isinstance(blocks, list) else ():
        if isinstance(block, dict) and all(isinstance(block.get(key) or "", str) for key in ("thinking", "signature")):
            yield block


def _calls(delta: Mapping[str, Any]) -> Iterator[CallDelta]:
    calls = delta.get("tool_calls")
    if not calls and isinstance(delta.get("function_call"), dict):
        calls = [{"index": 0, "function": delta["function_call"]}]  # the form that came before tool calls
    for item in calls if isinstance(calls, list) else ():
        if not isinstance(item, dict):
            continue
        function = item.get("function")
        function = function if isinstance(function, dict) else {}
        arguments = function.get("arguments")
        if arguments is not None and not isinstance(arguments, str):
            arguments = encoded(arguments).decode()
        index, name = item.get("index"), function.get("name")
        if isinstance(index, str) and re.fullmatch("[0-9]{1,6}", index):
            index = int(index)
        yield CallDelta(
            index=index if isinstance(index, int) else None,
            id=str(item["id"]) if item.get("id") else None,
            name=name if isinstance(name, str) and name else None,
            arguments=arguments or "",
        )


def error_of(endpoint: Endpoint, error: Any, *, secret: str = "") -> LLMError:
    """The error for an error object (or text) inside an answer with status 200."""
    if not isinstance(error, dict):
        return from_status(endpoint, 500, str(error), secret=secret)
    code = error.get("status") if error.get("code") is None else error["code"]
    try:
        status = int(code) if code is not None else 500
    except (TypeError, ValueError, OverflowError):
        status = 500
    words = [str(error[key]) for key in ("message", "type", "code") if error.get(key)]
    kinds = " ".join(words[1:]).lower()
    if "rate_limit" in kinds:
        status = 429
    elif "overloaded" in kinds:
        status = 503
    return from_status(endpoint, status if 400 <= status < 600 else 500, " ".join(words), secret=secret)
