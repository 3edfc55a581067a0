"""A unified diff of two versions of a text."""

from __future__ import annotations

import bisect
from collections import Counter
from typing import Iterator, List, NamedTuple

CONTEXT = 2
"""Lines shown before and after each change."""
_LIMIT = 64 * 1024
_DEPTH = 8


class LineChange(NamedTuple):
    """Lines of the old text and the lines of the new one that stand in their place, from start to end each."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


def unified(old: str, new: str, path: str) -> str:
    """Return the diff, "" for equal texts; cut when it is very long.

    It takes about linear time, for files of millions of lines: lines unique in both versions divide it, and what is
    between two of them is shown as one change.
    """
    if old == new:
        return ""
    before, after = _lines(old), _lines(new)
    parts = [f"--- {path}\n+++ {path}\n"]
    size = 0
    for group in _grouped(changes(before, after)):
        parts.append(_hunk(before, after, group))
        size += len(parts[-1])
        if size > _LIMIT:
            break
    return shortened("".join(parts))


def shortened(diff: str) -> str:
    """Return a diff, cut when it is very long."""
    return diff if len(diff) <= _LIMIT else diff[:_LIMIT] + "\n[… the rest of the diff is left out …]\n"


def changes(before: List[str], after: List[str]) -> List[LineChange]:
    """Return the differences in order; never two without a common line between them."""
    found: List[LineChange] = []
    waiting = [(LineChange(0, len(before), 0, len(after)), _DEPTH)]
    while waiting:
        part, depth = waiting.pop()
        part = _trimmed(before, after, part)
        old, new = part.old_end - part.old_start, part.new_end - part.new_start
        between = _divided(before, after, part) if old and new and depth else []
        if len(between) > 1:
            waiting += [(each, depth - 1) for each in reversed(between)]
        elif old or new:
            found.append(part)
    return found


def _trimmed(before: List[str], after: List[str], part: LineChange) -> LineChange:
    old_start, old_end, new_start, new_end = part
    while old_start < old_end and new_start < new_end and before[old_start] == after[new_start]:
        old_start, new_start = old_start + 1, new_start + 1
    while old_start < old_end and new_start < new_end and before[old_end - 1] == after[new_end - 1]:
        old_end, new_end = old_end - 1, new_end - 1
    return LineChange(old_start, old_end, new_start, new_end)


def _divided(before: List[str], after: List[str], part: LineChange) -> List[LineChange]:
    """What is between the lines unique on both sides, as many of them as are in the same order."""
    old, new = before[part.old_start : part.old_end], after[part.new_start : part.new_end]
    once = Counter(old)
    places = {line: place for place, line in enumerate(new) if once.get(line) == 1}
    again = Counter(new)
    pairs = [(place, places[line]) for place, line in enumerate(old) if line in places and again[line] == 1]
    parts: List[LineChange] = []
    old_start, new_start = part.old_start, part.new_start
    for old_place, new_place in _rising(pairs):
        old_at, new_at = part.old_start + old_place, part.new_start + new_place
        parts.append(LineChange(old_start, old_at, new_start, new_at))
        old_start, new_start = old_at + 1, new_at + 1
    return [*parts, LineChange(old_start, part.old_end, new_start, part.new_end)]


def _rising(pairs: "List[tuple[int, int]]") -> "List[tuple[int, int]]":
    tops: List[int] = []
    ends: List[int] = []
    above: List[int] = []
    for index, (_, place) in enumerate(pairs):
        pile = bisect.bisect_left(tops, place)
        above.append(ends[pile - 1] if pile else -1)
        if pile == len(tops):
            tops.append(place)
            ends.append(index)
        else:
            tops[pile], ends[pile] = place, index
    run: "List[tuple[int, int]]" = []
    index = ends[-1] if ends else -1
    while index >= 0:
        run.append(pairs[index])
        index = above[index]
    return run[::-1]


def _grouped(found: List[LineChange]) -> Iterator[List[LineChange]]:
    group: List[LineChange] = []
    for change in found:
        if group and change.old_start - group[-1].old_end > 2 * CONTEXT:
            yield group
            group = []
        group.append(change)
    if group:
        yield group


def _hunk(before: List[str], after: List[str], group: List[LineChange]) -> str:
    head, tail = group[0], group[-1]
    lead = min(CONTEXT, head.old_start)
    trail = min(CONTEXT, len(before) - tail.old_end)
    old = _range(head.old_start - lead, tail.old_end + trail)
    new = _range(head.new_start - lead, tail.new_end + trail)
    parts = [f"@@ -{old} +{new} @@\n"]
    position = head.old_start - lead
    for change in group:
        parts += [_line(" ", line) for line in before[position : change.old_start]]
        parts += [_line("-", line) for line in before[change.old_start : change.old_end]]
        parts += [_line("+", line) for line in after[change.new_start : change.new_end]]
        position = change.old_end
    parts += [_line(" ", line) for line in before[position : tail.old_end + trail]]
    return "".join(parts)


def _lines(text: str) -> List[str]:
    if "\r" in text and "\n" not in text:  # they end the lines, see TextFile
        text = text.replace("\r", "\n")
    lines = text.split("\n")
    last = lines.pop()
    lines = [line + "\n" for line in lines]
    return [*lines, last] if last else lines


def _range(start: int, end: int) -> str:
    count = end - start
    return f"{start + 1 if count else start},{count}" if count != 1 else str(start + 1)


def _line(sign: str, line: str) -> str:
    return sign + line if line.endswith("\n") else f"{sign}{line}\n\\ No newline at end of file\n"
