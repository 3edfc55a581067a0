"""Finding the places that the hunks of a patch speak of, and what each of them changes there."""

from __future__ import annotations

from typing import Callable, List, NamedTuple, Optional, Tuple

from .patch_text import Hunk, HunkLine, PatchError

_ELSEWHERE = 10000
_WAYS: "Tuple[Tuple[int, Callable[[str], str]], ...]" = ((0, str), (1, str.rstrip), (100, str.strip))
"""How lines are compared, each with how doubtful a match is: exactly, without blanks at the end, without any around."""


class Replacement(NamedTuple):
    """Lines of a file, from ``start``, that are replaced by others."""

    start: int
    removed: int
    added: List[str]


def changes(path: str, lines: List[str], hunks: List[Hunk]) -> Tuple[List[Replacement], int]:
    """Return the changes in their order, and how doubtful the places are (0: all exactly as they were given).

    Raises:
        PatchError: a place is not there.
    """
    found: List[Replacement] = []
    position = doubt = 0
    for hunk in hunks:
        position, more, missing = _behind_anchors(path, lines, hunk, position)
        doubt += more
        start, count, more = _place_but_for_blank_end(path, lines, hunk, position)
        doubt += more
        if missing is not None:
            _require_only_place(path, lines, hunk, start, count, missing)
        for change in _changes(hunk, start):
            _append(found, change)
        position = start + count
    return found, doubt


def _append(found: List[Replacement], change: Replacement) -> None:
    """Add a change; what follows another without a line between them is one with it."""
    if found and found[-1].start + found[-1].removed == change.start:
        last = found.pop()
        change = Replacement(last.start, last.removed + change.removed, last.added + change.added)
    found.append(change)


def _place_but_for_blank_end(path: str, lines: List[str], hunk: Hunk, position: int) -> Tuple[int, int, int]:
    """Return where the hunk's lines begin, how many of them stand there, and how doubtful that is.

    Empty lines behind a hunk may only set it apart from what follows; and a file has one at its end, so to speak.
    """
    try:
        start, doubt = _place(path, lines, hunk, position)
    except PatchError:
        count = len(hunk.lines)
        while count and hunk.lines[count - 1] == HunkLine(" ", ""):
            count -= 1
        shorter = hunk._replace(lines=hunk.lines[:count])
        if count == len(hunk.lines) or not shorter.before:
            raise
    else:
        return start, len(hunk.before), doubt
    start, doubt = _place(path, lines, shorter, position)
    end = start + len(shorter.before)
    return start, end - start, doubt + (1 if end < len(lines) else 0)


def _behind_anchors(path: str, lines: List[str], hunk: Hunk, position: int) -> Tuple[int, int, Optional[str]]:
    """Return where to go on, how doubtful that is, and the anchor that is not there, if the hunk can do without it."""
    doubt = 0
    missing: Optional[str] = None
    for anchor in hunk.anchors:
        for more, form in ((0, str), (1, str.strip)):
            at = next((i for i in range(position, len(lines)) if form(lines[i]) == form(anchor)), None)
            if at is not None:
                position, doubt = at + 1, doubt + more
                break
        else:
            if not hunk.before:  # nothing else would say where it belongs
                raise PatchError(
                    f"The line `{anchor}` of the hunk at line {hunk.number} is not in {path}, or only before the hunk "
                    "above. View the file and copy the line exactly."
                )
            missing = anchor
    return position, doubt, missing


def _require_only_place(path: str, lines: List[str], hunk: Hunk, start: int, count: int, anchor: str) -> None:
    """Raise PatchError when the hunk's lines stand below once more, and the anchor is not there to tell where."""
    wanted = [line.rstrip() for line in hunk.before[:count]]
    for other in range(start + 1, len(lines) - count + 1):
        if _is_there(lines, wanted, other, str.rstrip):
            raise PatchError(
                f"The line `{anchor}` of the hunk at line {hunk.number} is not in {path}, or only before the hunk "
                f"above, and the lines of the hunk stand in several places (lines {start + 1} and {other + 1}). Copy "
                "a line that stands above the right one exactly, or give more lines around the change."
            )


def _place(path: str, lines: List[str], hunk: Hunk, position: int) -> Tuple[int, int]:
    """Return where the hunk's lines begin, and how doubtful that is."""
    before = hunk.before
    if not before:
        return (len(lines) if hunk.ends_file else position), 0
    if hunk.ends_file:
        at_end = len(lines) - len(before)
        for doubt, form in _WAYS:
            if at_end >= position and _is_there(lines, before, at_end, form):
                return at_end, doubt
    for doubt, form in _WAYS:
        for start in range(position, len(lines) - len(before) + 1):
            if _is_there(lines, before, start, form):
                return start, doubt + (_ELSEWHERE if hunk.ends_file else 0)
    wanted = "\n".join(before)
    end = " at its end" if hunk.ends_file else ""
    below = f" below line {position}" if position else ""
    raise PatchError(
        f"The lines of the hunk at line {hunk.number} of the patch are not in {path}{end}{below}. View the file "
        f"and copy them exactly:\n{wanted}"
    )


def _is_there(lines: List[str], wanted: List[str], start: int, form: Callable[[str], str]) -> bool:
    return all(form(lines[start + index]) == form(line) for index, line in enumerate(wanted))


def _changes(hunk: Hunk, start: int) -> List[Replacement]:
    found: List[Replacement] = []
    position = begun = start
    added: List[str] = []
    for line in hunk.lines:
        if line.sign == " ":
            if position > begun or added:
                found.append(Replacement(begun, position - begun, added))
            position += 1
            begun, added = position, []
        elif line.sign == "-":
            position += 1
        else:
            added.append(line.text)
    if position > begun or added:
        found.append(Replacement(begun, position - begun, added))
    return found
