"""A unified diff of two versions of a text that differ in one place."""

from __future__ import annotations

from typing import List

_CONTEXT = 3
_LIMIT = 64 * 1024


def unified(old: str, new: str, path: str) -> str:
    """Return the diff, "" for equal texts; cut when it is very long.

    What both texts begin and end with is left out and the rest shown as one change: exact for an edit in one place,
    and found in linear time, which matters for files of millions of lines.
    """
    if old == new:
        return ""
    before, after = _lines(old), _lines(new)
    first = _common(before, after)
    last = _common(before[first:][::-1], after[first:][::-1])
    start = max(0, first - _CONTEXT)
    end_before = min(len(before), len(before) - last + _CONTEXT)
    end_after = min(len(after), len(after) - last + _CONTEXT)
    parts = [f"--- {path}\n+++ {path}\n", f"@@ -{_range(start, end_before)} +{_range(start, end_after)} @@\n"]
    parts += [_line(" ", line) for line in before[start:first]]
    parts += [_line("-", line) for line in before[first : len(before) - last]]
    parts += [_line("+", line) for line in after[first : len(after) - last]]
    parts += [_line(" ", line) for line in before[len(before) - last : end_before]]
    text = "".join(parts)
    return text if len(text) <= _LIMIT else text[:_LIMIT] + "\n[… the rest of the diff is left out …]\n"


def _lines(text: str) -> List[str]:
    lines = text.split("\n")
    last = lines.pop()
    lines = [line + "\n" for line in lines]
    return [*lines, last] if last else lines


def _common(before: List[str], after: List[str]) -> int:
    count = 0
    for one, other in zip(before, after):  # noqa: B905 - Python 3.8 does not know strict; the shorter one decides
        if one != other:
            break
        count += 1
    return count


def _range(start: int, end: int) -> str:
    count = end - start
    return f"{start + 1 if count else start},{count}" if count != 1 else str(start + 1)


def _line(sign: str, line: str) -> str:
    return sign + line if line.endswith("\n") else f"{sign}{line}\n\\ No newline at end of file\n"
