"""Reading patches in the format of ``apply_patch``: sections for files, hunks for places in them."""

from __future__ import annotations

import re
from typing import List, NamedTuple, Optional

BEGIN = "*** Begin Patch"
END = "*** End Patch"
UPDATE = "*** Update File: "
DELETE = "*** Delete File: "
ADD = "*** Add File: "
MOVE = "*** Move to: "
END_OF_FILE = "*** End of File"
_SECTIONS = (UPDATE, DELETE, ADD)
_GIT_RANGES = re.compile(r"-\d+(?:,\d+)? \+\d+(?:,\d+)? @@ ?")
"""What a hunk of a patch for git begins with: line numbers, which models count wrong, before what is an anchor."""


class PatchError(Exception):
    """The patch cannot be read or applied; the message is for the model."""


class HunkLine(NamedTuple):
    """A line of a hunk: kept (" "), taken out ("-") or put in ("+")."""

    sign: str
    text: str


class Hunk(NamedTuple):
    """One place: lines to look for before it, what stands there and what is to, and whether it ends the file."""

    anchors: List[str]
    lines: List[HunkLine]
    ends_file: bool
    number: int
    """Line of the patch where it begins, for messages."""

    @property
    def before(self) -> List[str]:
        """The lines as they should be found."""
        return [line.text for line in self.lines if line.sign != "+"]


class Section(NamedTuple):
    """What happens to one file: ``content`` for one to be added, ``hunks`` for one to be changed."""

    kind: str
    path: str
    hunks: List[Hunk]
    content: str = ""
    move_to: Optional[str] = None


def parse(text: str) -> List[Section]:
    """Return the sections of a patch, in their order.

    Raises:
        PatchError: it is no patch; the message names the line.
    """
    lines = text.strip().replace("\r\n", "\n").split("\n")
    if not lines[0].startswith(BEGIN):
        raise PatchError(f"Invalid patch: its first line must be `{BEGIN}`.")
    if len(lines) < 2 or lines[-1].rstrip() != END:
        raise PatchError(f"Invalid patch: its last line must be `{END}`.")
    reader = _Reader(lines)
    sections: List[Section] = []
    while not reader.at_end:
        section = _section(reader)
        if any(other.path == section.path for other in sections):
            raise PatchError(f"Invalid patch: {section.path} has two sections; put all its hunks into one.")
        sections.append(section)
    if not sections:
        raise PatchError("Invalid patch: it has no section; begin one with `*** Update File: path` or its like.")
    return sections


class _Reader:
    """The lines between the first and the last one."""

    def __init__(self, lines: List[str]) -> None:
        self._lines = lines
        self._position = 1

    @property
    def at_end(self) -> bool:
        return self._position >= len(self._lines) - 1

    @property
    def number(self) -> int:
        """Number of the next line, from one."""
        return self._position + 1

    @property
    def line(self) -> str:
        """The next line; "" behind the last one."""
        return "" if self.at_end else self._lines[self._position]

    @property
    def at_section(self) -> bool:
        return self.at_end or self.line.startswith(_SECTIONS)

    def take(self) -> str:
        line = self._lines[self._position]
        self._position += 1
        return line


def _section(reader: _Reader) -> Section:
    number, header = reader.number, reader.take()
    kind = next((each for each in _SECTIONS if header.startswith(each)), None)
    if kind is None:
        kinds = ", ".join(f"`{each}path`" for each in _SECTIONS)
        raise PatchError(f"Invalid patch: line {number} must begin a section ({kinds}), but is `{header[:200]}`.")
    path = header[len(kind) :].strip()
    if not path or path.endswith("/"):
        raise PatchError(f"Invalid patch: line {number} names no file.")
    if kind == DELETE:
        return Section(DELETE, path, [])
    if kind == ADD:
        return Section(ADD, path, [], content=_content(reader))
    move_to = reader.take()[len(MOVE) :].strip() if reader.line.startswith(MOVE) else None
    hunks: List[Hunk] = []
    while not reader.at_section:
        hunks.append(_hunk(reader, is_first=not hunks))
    if not hunks and move_to is None:
        raise PatchError(f"Invalid patch: the section of {path} (line {number}) changes nothing.")
    return Section(UPDATE, path, hunks, move_to=move_to)


def _content(reader: _Reader) -> str:
    lines: List[str] = []
    while not reader.at_section:
        number, line = reader.number, reader.take()
        if not line.startswith("+"):
            raise PatchError(f"Invalid patch: line {number} of a new file must begin with `+`, but is `{line[:200]}`.")
        lines.append(line[1:] + "\n")
    return "".join(lines)


def _hunk(reader: _Reader, *, is_first: bool) -> Hunk:
    number = reader.number
    anchors: List[str] = []
    if not reader.line.startswith("@@") and not is_first:
        raise PatchError(f"Invalid patch: line {number} must begin a hunk with `@@`, but is `{reader.line[:200]}`.")
    while reader.line.startswith("@@") and not reader.at_end:
        line = reader.take()
        if line != "@@" and not line.startswith("@@ "):
            raise PatchError(f"Invalid patch: line {reader.number - 1} must be `@@` alone, or `@@ ` and a line.")
        anchor = _GIT_RANGES.sub("", line[3:])
        if anchor.strip():
            anchors.append(anchor)
    lines: List[HunkLine] = []
    ends_file = False
    while not reader.at_section and not reader.line.startswith("@@"):
        line = reader.take()
        if line.rstrip() == END_OF_FILE:
            ends_file = True
            break
        if line[:1] not in ("", " ", "-", "+"):
            raise PatchError(
                f"Invalid patch: line {reader.number - 1} must begin with a blank, `-` or `+`, but is `{line[:200]}`."
            )
        lines.append(HunkLine(line[:1] or " ", line[1:]))
    if not lines:
        raise PatchError(f"Invalid patch: the hunk at line {number} is empty.")
    return Hunk(anchors, lines, ends_file, number)
