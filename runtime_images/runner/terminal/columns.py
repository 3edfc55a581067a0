"""Columns of a terminal that a text takes, and lines divided or overwritten at a column.

East Asian characters and most emoji take two, combining accents none. A line longer than any screen counts each
character as one.
"""

from __future__ import annotations

import re
from typing import Dict, Tuple

LONGEST = 1024
_KNOWN_LIMIT = 4096
_PERHAPS_NOT_ONE = re.compile(
    "[^\x00-\u02ff\u0370-\u0482\u048a-\u0590\u2010-\u2027\u2030-\u205e\u2190-\u2319\u2500-\u25fc\ufffd]"
)
"""Most of what is printed has none of these: each of its characters takes one column."""


class _Widths(Dict[str, int]):
    def __missing__(self, character: str) -> int:
        import unicodedata  # a table of a megabyte, which a runner whose programs print ASCII does without

        if len(self) >= _KNOWN_LIMIT:
            self.clear()
        kind = unicodedata.category(character)
        if kind in ("Mn", "Me") or (kind == "Cf" and character != "\xad") or "\u1160" <= character <= "\u11ff":
            width = 0
        else:
            width = 2 if kind != "Cn" and unicodedata.east_asian_width(character) in "WF" else 1
        self[character] = width
        return width


_widths = _Widths()


def width(text: str) -> int:
    """How many columns a text without control characters takes."""
    if _is_simple(text):
        return len(text)
    return sum(map(_widths.__getitem__, text))


def split(line: str, column: int) -> Tuple[str, str]:
    """The line's first ``column`` columns, padded with blanks, and the rest; a character that is cut becomes blanks."""
    if _is_simple(line):
        return line[:column].ljust(column), line[column:]
    taken = 0
    for index, character in enumerate(line):
        wide = _widths[character]
        if taken + wide > column:
            if taken < column:
                return line[:index] + " ", " " + line[index + 1 :]
            return line[:index], line[index:]
        taken += wide
    return line + " " * (column - taken), ""


def overwrite(line: str, column: int, text: str) -> Tuple[str, int]:
    """Return the line with a text written over it from a column on, and the column behind the text."""
    if len(line) > LONGEST or (_is_simple(line) and _is_simple(text)):
        end = column + len(text)
        return line[:column].ljust(column) + text + line[end:], end
    before, rest = split(line, column)
    wide = width(text)
    written = before + text + split(rest, wide)[1]
    return written, len(before) + len(text) if len(written) > LONGEST else column + wide


def fitting(text: str, room: int) -> str:
    """Return as much of the text's beginning as fits into so many columns."""
    if text.isascii():
        return text[:room]
    taken = 0
    for index, character in enumerate(text):
        taken += _widths[character]
        if taken > room:
            return text[:index]
    return text


def _is_simple(text: str) -> bool:
    return text.isascii() or len(text) > LONGEST or _PERHAPS_NOT_ONE.search(text) is None
