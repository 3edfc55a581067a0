"""A text file as the editor sees it: characters with plain line ends, and the way back to the exact bytes."""

from __future__ import annotations

import bisect
from typing import List, Tuple

from . import encoding


class TextFile:
    """One version of a file. Positions and lines refer to :attr:`text`, in which a newline alone ends every line.

    An edit touches the bytes of its own range only: encoding, byte order mark and the line ends of all other lines,
    mixed ones too, stay as they are. New lines end as most lines of the replaced range, or else of the file, do. In a
    file without any newline, carriage returns alone end the lines.
    """

    def __init__(self, data: bytes) -> None:
        self._raw, self.encoding, self._mark = encoding.decode(data)
        self._has_returns_only = "\r" in self._raw and "\n" not in self._raw
        self.text = self._raw.replace("\r" if self._has_returns_only else "\r\n", "\n")
        self._returns = self._find_returns() if len(self.text) != len(self._raw) else []

    def lines(self) -> List[str]:
        """Return the lines without their ends; a final line end begins no further line."""
        lines = self.text.split("\n")
        if not lines[-1]:
            lines.pop()
        return lines

    def replaced(self, start: int, end: int, new: str) -> bytes:
        """Return the file's bytes with a range of its text replaced."""
        return self.with_changes([(start, end, new)])

    def with_changes(self, changes: List[Tuple[int, int, str]]) -> bytes:
        """Return the file's bytes with several ranges replaced, each given by start, end and its new text.

        They are in the order of the text, and none overlaps another.
        """
        parts = [self._mark]
        kept = 0
        for start, end, new in changes:
            raw_start, raw_end = self._raw_position(start), self._raw_position(end)
            parts += [self._raw[kept:raw_start], self._with_line_ends(new, raw_start, raw_end)]
            kept = raw_end
        return encoding.encode("".join([*parts, self._raw[kept:]]), self.encoding)

    def line_start(self, number: int) -> int:
        """Return the position at which the line after the first ``number`` lines begins."""
        position = 0
        for _ in range(number):
            position = self.text.find("\n", position) + 1
            if position == 0:
                return len(self.text)
        return position

    def _find_returns(self) -> List[int]:
        """Return the positions in :attr:`text` of the line ends that have a carriage return in the file."""
        positions: List[int] = []
        found = self._raw.find("\r\n")
        while found >= 0:
            positions.append(found - len(positions))
            found = self._raw.find("\r\n", found + 2)
        return positions

    def _raw_position(self, position: int) -> int:
        return position + bisect.bisect_left(self._returns, position)

    def _with_line_ends(self, new: str, start: int, end: int) -> str:
        if self._has_returns_only:
            return new.replace("\n", "\r")
        if "\r" not in new and self._ends_with_return(start, end):
            return new.replace("\n", "\r\n")
        return new

    def _ends_with_return(self, start: int, end: int) -> bool:
        inside = self._raw.count("\n", start, end)
        if inside:
            return self._raw.count("\r\n", start, end) * 2 > inside
        return len(self._returns) * 2 > self.text.count("\n")
