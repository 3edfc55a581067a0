"""``apply_patch``: patches with sections for files and hunks for places in them, applied whole or not at all."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Set, Tuple

from ..core import arguments
from . import disk
from .diff import shortened, unified
from .edits import FILE_LIMIT, EditError, EditHistory
from .text_file import TextFile, decode, encode, is_binary

BEGIN = "*** Begin Patch"
END = "*** End Patch"
UPDATE = "*** Update File: "
DELETE = "*** Delete File: "
ADD = "*** Add File: "
MOVE = "*** Move to: "
END_OF_FILE = "*** End of File"
_SECTIONS = (UPDATE, DELETE, ADD)
_GIT_RANGES = re.compile(r"-\d+(?:,\d+)? \+\d+(?:,\d+)? @@ ?")
"""Line numbers of a git patch's hunk, which models count wrong, before what is an anchor."""
_ELSEWHERE = 10000
_WAYS: "Tuple[Tuple[int, Callable[[str], str]], ...]" = ((0, str), (1, str.rstrip), (100, str.strip))
"""How lines are compared, each with how doubtful a match is: exactly, without trailing, without outer blanks."""


class _Step(NamedTuple):
    """What is done to one file: ``target`` is where the new content goes, None where the file goes."""

    summary: str
    path: str
    target: Optional[str]
    old: Optional[bytes]
    new: bytes
    diff: str


class Patcher:
    """Applies patches below one folder. Blocking; for worker threads, one patch at a time."""

    def __init__(self, workspace: str, history: EditHistory) -> None:
        self._workspace = workspace
        self._history = history

    def run(self, patch: str) -> Dict[str, Any]:
        """Apply the patch and return the result of ``patch.apply``; what is wrong with it is a result too."""
        fuzz = 0
        steps: List[_Step] = []
        touched: Set[str] = set()
        try:
            for section in parse(patch):
                step, more = self._step(section)
                files = {os.path.realpath(path) for path in (step.path, step.target or step.path)}
                if files & touched:  # by other names for it, or links to it
                    raise EditError(f"Two sections of the patch change the file {section.move_to or section.path}.")
                touched |= files
                steps.append(step)
                fuzz += more
            self._write(steps)
        except (EditError, disk.FileError) as error:
            return {"text": str(error), "is_error": True, "paths": [], "diff": None, "fuzz": 0}
        return {
            "text": "\n".join(["Done!", *(step.summary for step in steps)]),
            "is_error": False,
            "paths": [step.target or step.path for step in steps],
            "diff": shortened("".join(step.diff for step in steps)),
            "fuzz": fuzz,
        }

    def _step(self, section: Section) -> Tuple[_Step, int]:
        path = self._inside(section.path)
        if section.kind == ADD:
            if disk.kind(path) != "missing":
                raise EditError(f"{section.path} cannot be added: it exists already. Update it, or delete it first.")
            new = encode(section.content, "utf-8")
            return _Step(f"A {section.path}", path, path, None, new, unified("", section.content, path)), 0
        old = _present_content(path, section)
        is_text = not is_binary(old)
        if section.kind == DELETE:
            diff = unified(decode(old).text, "", path) if is_text else ""
            return _Step(f"D {section.path}", path, None, old, b"", diff), 0
        if not is_text:
            raise EditError(f"{section.path} is binary and cannot be patched.")
        lines = TextFile(old).lines()
        found, fuzz = changes(section.path, lines, section.hunks)
        new = _changed(TextFile(old), found)
        if len(new) > FILE_LIMIT:
            raise EditError(f"{section.path} would have {len(new)} bytes; the limit is {FILE_LIMIT}.")
        target, summary, name = path, f"M {section.path}", section.move_to
        if name is not None and name != section.path:
            if os.path.isabs(name) or ".." in name.split("/"):
                raise EditError(
                    f"A file cannot be moved to {name}: give a path relative to the workspace, without `..`."
                )
            target, summary = self._inside(name), f"R {section.path} -> {name}"
            if disk.kind(target) != "missing":
                raise EditError(f"A file cannot be moved to {name}: that exists already.")
        return _Step(summary, path, target, old, new, _diff(path, target, lines, found)), fuzz

    def _inside(self, name: str) -> str:
        """The absolute path of a file that lies in the workspace, also when links are followed."""
        if "\0" in name:
            raise EditError("A path in the patch holds a NUL character.")
        root = os.path.realpath(self._workspace)
        path = arguments.resolve(self._workspace, name)
        if os.path.commonpath([root, os.path.realpath(path)]) != root or os.path.realpath(path) == root:
            raise EditError(f"{name} is outside the workspace {self._workspace}; a patch may change only files in it.")
        return path

    def _write(self, steps: List[_Step]) -> None:
        done: List[_Step] = []
        try:
            for step in steps:
                done.append(step)
                if step.target is not None:
                    mode = None if step.target == step.path else disk.read(step.path, 1).mode
                    disk.replace(step.target, step.new, mode)
                if step.target != step.path:
                    try:
                        os.unlink(step.path)
                    except OSError as error:
                        raise disk.failure(error, step.path) from error
        except disk.FileError:
            for step in reversed(done):  # restored as far as that can be done
                with contextlib.suppress(OSError, disk.FileError):
                    if step.old is not None:
                        disk.replace(step.path, step.old)
                    if step.target is not None and (step.old is None or step.target != step.path):
                        os.unlink(step.target)
            raise
        for step in steps:
            if step.old is not None and step.target == step.path:
                self._history.push(step.path, step.old)


def _present_content(path: str, section: Section) -> bytes:
    name = section.path
    if disk.kind(path) == "missing":
        hint = "it cannot be deleted" if section.kind == DELETE else f"use `*** Add File: {name}` for a new file"
        raise EditError(f"{name} does not exist; {hint}.")
    content = disk.read(path, FILE_LIMIT + 1)
    if len(content.data) > FILE_LIMIT:
        raise EditError(f"{name} has more than {FILE_LIMIT} bytes, which is the limit.")
    return content.data


def _changed(file: TextFile, found: List[Replacement]) -> bytes:
    lines = file.lines()
    starts = [0, *itertools.accumulate(len(line) + 1 for line in lines)]
    ranges: List[Tuple[int, int, str]] = []
    for change in found:
        start, end = starts[change.start], min(len(file.text), starts[change.start + change.removed])
        text = "".join(f"{line}\n" for line in change.added)
        if lines and not file.text.endswith("\n") and change.start + change.removed == len(lines):
            # The last line has no end: what comes in its place has none either.
            text = ("\n" + text if change.removed == 0 else text)[:-1] if text else ""
        ranges.append((min(start, end), end, text))
    return file.with_changes(ranges)


def _diff(path: str, target: str, lines: List[str], found: List[Replacement]) -> str:
    parts = [f"--- {path}\n+++ {target}\n"] if found else []
    shift = shown = 0
    for index, change in enumerate(found):
        ceiling = found[index + 1].start if index + 1 < len(found) else len(lines)
        end = change.start + change.removed
        head = lines[max(shown, change.start - 3) : change.start]
        tail = lines[end : min(ceiling, end + 3)]
        shown = end + len(tail)
        first = change.start - len(head) + 1
        around = len(head) + len(tail)
        parts.append(
            f"@@ -{first},{around + change.removed} +{first + shift},{around + len(change.added)} @@\n"
            + "".join(f" {line}\n" for line in head)
            + "".join(f"-{line}\n" for line in lines[change.start : end])
            + "".join(f"+{line}\n" for line in change.added)
            + "".join(f" {line}\n" for line in tail)
        )
        shift += len(change.added) - change.removed
    return "".join(parts)


# Reading a patch


class HunkLine(NamedTuple):
    """A line of a hunk: kept (" "), removed ("-") or added ("+")."""

    sign: str
    text: str


class Hunk(NamedTuple):
    """One place: anchor lines to look for before it, its old and new lines, and whether it ends the file."""

    anchors: List[str]
    lines: List[HunkLine]
    ends_file: bool
    number: int
    """Line of the patch where it begins, for messages."""

    @property
    def before(self) -> List[str]:
        return [line.text for line in self.lines if line.sign != "+"]


class Section(NamedTuple):
    """What happens to one file: ``content`` for one to be added, ``hunks`` for one to be changed."""

    kind: str
    path: str
    hunks: List[Hunk]
    content: str = ""
    move_to: Optional[str] = None


def parse(text: str) -> List[Section]:
    """Return the sections of a patch in order; raises `EditError`, whose message names the line."""
    lines = text.strip().replace("\r\n", "\n").split("\n")
    if not lines[0].startswith(BEGIN):
        raise EditError(f"Invalid patch: its first line must be `{BEGIN}`.")
    if len(lines) < 2 or lines[-1].rstrip() != END:
        raise EditError(f"Invalid patch: its last line must be `{END}`.")
    reader = _Reader(lines)
    sections: List[Section] = []
    while not reader.at_end:
        section = _section(reader)
        if any(other.path == section.path for other in sections):
            raise EditError(f"Invalid patch: {section.path} has two sections; put all its hunks into one.")
        sections.append(section)
    if not sections:
        raise EditError("Invalid patch: it has no section; begin one with `*** Update File: path` or its like.")
    return sections


class _Reader:
    """The lines of a patch between its first and its last; ``number`` is that of the next one, counted from one."""

    def __init__(self, lines: List[str]) -> None:
        self._lines = lines
        self.number = 2

    @property
    def at_end(self) -> bool:
        return self.number >= len(self._lines)

    @property
    def line(self) -> str:
        return "" if self.at_end else self._lines[self.number - 1]

    @property
    def at_section(self) -> bool:
        return self.at_end or self.line.startswith(_SECTIONS)

    def take(self) -> str:
        self.number += 1
        return self._lines[self.number - 2]


def _section(reader: _Reader) -> Section:
    number, header = reader.number, reader.take()
    kind = next((each for each in _SECTIONS if header.startswith(each)), None)
    if kind is None:
        kinds = ", ".join(f"`{each}path`" for each in _SECTIONS)
        raise EditError(f"Invalid patch: line {number} must begin a section ({kinds}), but is `{header[:200]}`.")
    path = header[len(kind) :].strip()
    if not path or path.endswith("/"):
        raise EditError(f"Invalid patch: line {number} names no file.")
    if kind == DELETE:
        return Section(DELETE, path, [])
    if kind == ADD:
        added: List[str] = []
        while not reader.at_section:
            number, line = reader.number, reader.take()
            if not line.startswith("+"):
                raise EditError(
                    f"Invalid patch: line {number} of a new file must begin with `+`, but is `{line[:200]}`."
                )
            added.append(line[1:] + "\n")
        return Section(ADD, path, [], content="".join(added))
    move_to = reader.take()[len(MOVE) :].strip() if reader.line.startswith(MOVE) else None
    hunks: List[Hunk] = []
    while not reader.at_section:
        hunks.append(_hunk(reader, is_first=not hunks))
    if not hunks and move_to is None:
        raise EditError(f"Invalid patch: the section of {path} (line {number}) changes nothing.")
    return Section(UPDATE, path, hunks, move_to=move_to)


def _hunk(reader: _Reader, *, is_first: bool) -> Hunk:
    number = reader.number
    anchors: List[str] = []
    if not reader.line.startswith("@@") and not is_first:
        raise EditError(f"Invalid patch: line {number} must begin a hunk with `@@`, but is `{reader.line[:200]}`.")
    while reader.line.startswith("@@") and not reader.at_end:
        line = reader.take()
        if line != "@@" and not line.startswith("@@ "):
            raise EditError(f"Invalid patch: line {reader.number - 1} must be `@@` alone, or `@@ ` and a line.")
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
            raise EditError(
                f"Invalid patch: line {reader.number - 1} must begin with a blank, `-` or `+`, but is `{line[:200]}`."
            )
        lines.append(HunkLine(line[:1] or " ", line[1:]))
    if not lines:
        raise EditError(f"Invalid patch: the hunk at line {number} is empty.")
    return Hunk(anchors, lines, ends_file, number)


# Finding the places


class Replacement(NamedTuple):
    """Lines of a file, from ``start``, that are replaced by others."""

    start: int
    removed: int
    added: List[str]


def changes(path: str, lines: List[str], hunks: List[Hunk]) -> Tuple[List[Replacement], int]:
    """Return the changes in order, and how doubtful the places are (0: all matched exactly)."""
    found: List[Replacement] = []
    position = fuzz = 0
    for hunk in hunks:
        position, more, missing = _behind_anchors(path, lines, hunk, position)
        fuzz += more
        start, count, more = _place_but_for_blank_end(path, lines, hunk, position)
        fuzz += more
        if missing is not None:
            _require_only_place(path, lines, hunk, start, count, missing)
        at = start
        for line in hunk.lines:
            if line.sign != " " and (not found or found[-1].start + found[-1].removed != at):
                found.append(Replacement(at, 0, []))
            if line.sign == "+":
                found[-1].added.append(line.text)
                continue
            if line.sign == "-":
                found[-1] = found[-1]._replace(removed=found[-1].removed + 1)
            at += 1
        position = start + count
    return found, fuzz


def _place_but_for_blank_end(path: str, lines: List[str], hunk: Hunk, position: int) -> Tuple[int, int, int]:
    """Where the hunk's lines begin, how many stand there, how doubtful that is; trailing empty lines may lack."""
    try:
        start, fuzz = _place(path, lines, hunk, position)
        return start, len(hunk.before), fuzz
    except EditError:
        count = len(hunk.lines)
        while count and hunk.lines[count - 1] == HunkLine(" ", ""):
            count -= 1
        shorter = hunk._replace(lines=hunk.lines[:count])
        if count == len(hunk.lines) or not shorter.before:
            raise
    start, fuzz = _place(path, lines, shorter, position)
    end = start + len(shorter.before)
    return start, end - start, fuzz + (1 if end < len(lines) else 0)


def _behind_anchors(path: str, lines: List[str], hunk: Hunk, position: int) -> Tuple[int, int, Optional[str]]:
    """Where to go on, how doubtful that is, and the missing anchor, if the hunk can do without it."""
    fuzz = 0
    missing: Optional[str] = None
    for anchor in hunk.anchors:
        for more, form in ((0, str), (1, str.strip)):
            at = next((i for i in range(position, len(lines)) if form(lines[i]) == form(anchor)), None)
            if at is not None:
                position, fuzz = at + 1, fuzz + more
                break
        else:
            if not hunk.before:  # nothing else would say where it belongs
                raise EditError(
                    f"The line `{anchor}` of the hunk at line {hunk.number} is not in {path}, or only before the hunk "
                    "above. View the file and copy the line exactly."
                )
            missing = anchor
    return position, fuzz, missing


def _require_only_place(path: str, lines: List[str], hunk: Hunk, start: int, count: int, anchor: str) -> None:
    """Refuse a hunk whose lines stand below once more when the anchor that would decide is missing."""
    expected = [line.rstrip() for line in hunk.before[:count]]
    for other in range(start + 1, len(lines) - count + 1):
        if _is_there(lines, expected, other, str.rstrip):
            raise EditError(
                f"The line `{anchor}` of the hunk at line {hunk.number} is not in {path}, or only before the hunk "
                f"above, and the lines of the hunk stand in several places (lines {start + 1} and {other + 1}). Copy "
                "a line that stands above the right one exactly, or give more lines around the change."
            )


def _place(path: str, lines: List[str], hunk: Hunk, position: int) -> Tuple[int, int]:
    before = hunk.before
    if not before:
        return (len(lines) if hunk.ends_file else position), 0
    if hunk.ends_file:
        at_end = len(lines) - len(before)
        for fuzz, form in _WAYS:
            if at_end >= position and _is_there(lines, before, at_end, form):
                return at_end, fuzz
    for fuzz, form in _WAYS:
        for start in range(position, len(lines) - len(before) + 1):
            if _is_there(lines, before, start, form):
                return start, fuzz + (_ELSEWHERE if hunk.ends_file else 0)
    expected = "\n".join(before)
    end = " at its end" if hunk.ends_file else ""
    below = f" below line {position}" if position else ""
    raise EditError(
        f"The lines of the hunk at line {hunk.number} of the patch are not in {path}{end}{below}. View the file "
        f"and copy them exactly:\n{expected}"
    )


def _is_there(lines: List[str], expected: List[str], start: int, form: Callable[[str], str]) -> bool:
    return all(form(lines[start + index]) == form(line) for index, line in enumerate(expected))
