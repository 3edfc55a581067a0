"""Tool calls that a model writes as text instead of making them: told apart from text that only speaks of calls."""

from __future__ import annotations

import json
import re
from collections.abc import Collection

_MARKS = r"<\|?tool_calls?\|?>|<function_calls?>|\[TOOL_CALLS\]|<function=|<invoke\s+name=|<\|python_tag\|>"
_NEAR = 200


def is_call_in_text(text: str, tools: Collection[str]) -> bool:
    """Whether the text is, or ends with, a call of one of these tools in a form that models are trained on."""
    if not tools:
        return False
    stripped = text.strip().removeprefix("```json").removeprefix("```").removesuffix("```").strip()
    if stripped.startswith("{") and _is_call_object(stripped, tools):
        return True
    names = "|".join(map(re.escape, sorted(tools)))
    marks = list(re.finditer(_MARKS, text))
    return bool(marks) and re.match(rf"[\s\S]{{0,{_NEAR}}}?\b(?:{names})\b", text[marks[-1].start() :]) is not None


def _is_call_object(text: str, tools: Collection[str]) -> bool:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    if not isinstance(value, dict):
        return False
    inner = value.get("function")
    call: dict[str, object] = inner if isinstance(inner, dict) else value
    return call.get("name") in tools and ("arguments" in call or "parameters" in call)
