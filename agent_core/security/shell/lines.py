"""A script's text as a shell reads it: a backslash in front of a line's end joins the next line to it.

The shell takes both away before it looks for words, so they may stand anywhere, also inside a name or an operator. Only
where the text is taken as it is (single quotes, comments, here-documents with a quoted delimiter) they stay.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from itertools import pairwise

_CONTINUED = re.compile(r"(?<!\\)((?:\\\\)*+)\\\n")
_JOINT = "\\\n"


class JoinedLines:
    """A text with its lines joined, which still knows where they were."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._joints: list[int] = []
        if _JOINT in text:
            self._join(text)

    def _join(self, text: str) -> None:
        pieces: list[str] = []
        length = start = 0
        for found in _CONTINUED.finditer(text):
            pieces.append(text[start : found.end(1)])
            length += len(pieces[-1])
            self._joints.append(length)
            start = found.end()
        self.text = "".join([*pieces, text[start:]])

    def original(self, start: int, end: int) -> str:
        """The text between two positions as it was before its lines were joined."""
        joints = self._joints[bisect_left(self._joints, start) : bisect_right(self._joints, end)]
        borders = [start, *joints, end]
        return _JOINT.join(self.text[left:right] for left, right in pairwise(borders))

    def is_joined(self, start: int, end: int) -> bool:
        """Whether lines were joined between two positions."""
        return bisect_left(self._joints, start) < bisect_right(self._joints, end)

    def after(self, start: int, length: int) -> int:
        """The position that is `length` characters of the original text behind `start`."""
        first = found = bisect_left(self._joints, start)
        while found < len(self._joints) and self._joints[found] - start + 2 * (found - first) < length:
            found += 1
        return start + length - 2 * (found - first)

    def part_first(self, start: int, end: int) -> None:
        """Make the first of the joints between two positions the end of a line again."""
        first = bisect_left(self._joints, start)
        if first < len(self._joints) and (position := self._joints[first]) <= end:
            self.text = self.text[:position] + "\n" + self.text[position:]
            self._joints[first:] = [joint + 1 for joint in self._joints[first + 1 :]]
