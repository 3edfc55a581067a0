"""Where two JSON values first differ, in words."""

from __future__ import annotations

from typing import Any

_EXCERPT = 60


def first_difference(recorded: Any, asked: Any, path: str = "") -> str | None:
    """The path of the first difference and what stands there in each; None for equal values."""
    if isinstance(recorded, dict) and isinstance(asked, dict):
        for key in {**recorded, **asked}:
            here = f"{path}.{key}" if path else key
            if key not in recorded or key not in asked:
                side = "only asked now" if key not in recorded else "only recorded"
                return f"{here} ({side})"
            difference = first_difference(recorded[key], asked[key], here)
            if difference is not None:
                return difference
        return None
    if isinstance(recorded, list) and isinstance(asked, list):
        for index, (old, new) in enumerate(zip(recorded, asked, strict=False)):
            difference = first_difference(old, new, f"{path}[{index}]")
            if difference is not None:
                return difference
        if len(recorded) != len(asked):
            return f"{path} (recorded {len(recorded)} items, asked {len(asked)})"
        return None
    if recorded == asked and type(recorded) is type(asked):
        return None
    return f"{path} ({_excerpts(recorded, asked)})"


def _excerpts(recorded: Any, asked: Any) -> str:
    """Both values from shortly before where they part."""
    if not (isinstance(recorded, str) and isinstance(asked, str)):
        return f"recorded {_short(repr(recorded))}, asked {_short(repr(asked))}"
    same = 0
    for old, new in zip(recorded, asked, strict=False):
        if old != new:
            break
        same += 1
    start = max(0, same - _EXCERPT // 3)
    return f"from character {same}: recorded {_short(repr(recorded[start:]))}, asked {_short(repr(asked[start:]))}"


def _short(text: str) -> str:
    return text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}…"
