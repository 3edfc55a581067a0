"""Names of keys that a command's input may consist of, and the bytes that a terminal sends for them."""

from __future__ import annotations

import re
from typing import NamedTuple, Optional


class Key(NamedTuple):
    """A key: its name for notices, and what a terminal sends for it."""

    name: str
    data: bytes


_NAMED = {
    "ENTER": b"\r",
    "TAB": b"\t",
    "BS": b"\x7f",
    "ESC": b"\x1b",
    "UP": b"\x1b[A",
    "DOWN": b"\x1b[B",
    "RIGHT": b"\x1b[C",
    "LEFT": b"\x1b[D",
    "HOME": b"\x1b[H",
    "END": b"\x1b[F",
    "PGUP": b"\x1b[5~",
    "PGDN": b"\x1b[6~",
}
_CONTROL = re.compile(r"(?:C-|CTRL[-+])([A-Z])\Z", re.IGNORECASE)


def key(text: str) -> Optional[Key]:
    """Return the key that the whole text names, or None."""
    name = text.strip()
    if name in _NAMED:
        return Key(name, _NAMED[name])
    match = _CONTROL.match(name)
    if match is None:
        return None
    letter = match.group(1).upper()
    return Key(f"CTRL+{letter}", bytes([ord(letter) - ord("A") + 1]))


def typed(text: str) -> bytes:
    """Return the bytes of a person typing the text and pressing Enter, which a terminal sends as a carriage return."""
    return text.replace("\r\n", "\n").replace("\n", "\r").encode("utf-8", "replace") + b"\r"
