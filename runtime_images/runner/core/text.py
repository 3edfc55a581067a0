"""Text for people and models: cut to a limit, and file names with escapes for invisible characters."""

from __future__ import annotations

import os
from typing import NamedTuple, Optional


class SavedText(NamedTuple):
    """A file with an output; ``is_whole`` is False when only its beginning had room."""

    path: str
    is_whole: bool


class Cut(NamedTuple):
    """Text within a limit, and how many characters it leaves out."""

    text: str
    omitted: int


def cut_middle(text: str, limit: int, hint: str = "") -> Cut:
    """Cut the middle out of a text over the limit and say so in its place."""
    return cut_ends(text, text, len(text), limit, hint)


def cut_ends(head: str, tail: str, total: int, limit: int, hint: str = "", saved: Optional[SavedText] = None) -> Cut:
    """Cut a text of which beginning and end are at hand, each at least ``limit`` long unless complete.

    The beginning has the same length with and without a file to name; the end makes room for its name.
    """
    if total <= limit:
        return Cut(head, 0)
    notice = _notice(total - limit, hint)
    for _ in range(3):  # the notice names a number whose own length changes the number
        room = limit - len(notice)
        if room <= 0:
            return Cut(notice[:limit], total)
        notice = _notice(total - room, hint)
    room = max(0, limit - len(notice))
    first = (room + 1) // 2
    if saved is not None:
        line = head.count("\n", 0, first) + 1
        whole = "all of it is" if saved.is_whole else "its beginning is"
        hint = f"{hint}; {whole} in {saved.path}, where line {line} is the first that is hidden here"
        for _ in range(3):
            last = max(0, limit - first - len(notice))
            notice = _notice(total - first - last, hint)
        room = first + max(0, limit - first - len(notice))
    last = room - first
    return Cut(head[:first] + notice + (tail[-last:] if last else ""), total - room)


def _notice(missing: int, hint: str) -> str:
    return f"\n[… {missing} characters left out here{hint} …]\n"


def printable(path: str) -> str:
    """Return a path as text: undecodable bytes and invisible characters as escapes."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)
