"""Names of files as text for anybody."""

from __future__ import annotations

import os


def shown(path: str) -> str:
    """Return a path as text: bytes that are no characters, and characters that cannot be seen, as escapes."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)
