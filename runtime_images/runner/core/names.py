"""Names of files as text for anybody."""

from __future__ import annotations

import os
from typing import Any


def below(folder: str, path: str) -> str:
    """Return the absolute path that is meant: one below the folder, or, as in a shell, below the home with ``~/``."""
    if path == "~" or path.startswith("~/"):
        path = os.path.expanduser("~") + path[1:]
    return os.path.normpath(os.path.join(folder, path))


def shown(path: str) -> str:
    """Return a path as text: bytes that are no characters, and characters that cannot be seen, as escapes."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def whole(value: Any) -> Any:
    """Return a value of JSON in which bytes of names that are no characters are escapes, as a log needs it."""
    if isinstance(value, str):
        return (
            value if value.isascii() else value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        )
    if isinstance(value, dict):
        return {whole(name): whole(item) for name, item in value.items()}
    return [whole(item) for item in value] if isinstance(value, list) else value
