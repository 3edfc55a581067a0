"""Text as a person can read it in a terminal: nothing that moves the cursor, and one line where it has to be."""

from __future__ import annotations

import re
from typing import Final

MAX_LINE_CHARS: Final = 200

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, the cursor
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"  # OSC, DCS and their like, up to their end
    r"|\x1b[ -/]*[0-~]?"
    r"|\x9b[0-?]*[ -/]*[@-~]",
    re.DOTALL,
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""Control characters but line feeds and tabs, those that turn the direction of what stands around them, and halves of
characters, which no stream takes.
"""


def plain_text(text: str) -> str:
    """`text` without escape sequences and control characters; line feeds and tabs stay."""
    return _CONTROLS.sub("", _ESCAPES.sub("", text.replace("\r\n", "\n")))


def one_line(text: str, limit: int = MAX_LINE_CHARS) -> str:
    """`text` in at most `limit` characters of one line: white space becomes a single space, a cut ends with ``…``."""
    # What is cut off is not looked at, however long it is; sequences and spaces take room that they do not keep.
    words = " ".join(plain_text(text[: 20 * limit]).split())
    return words if len(words) <= limit else f"{words[: limit - 1].rstrip()}…"


def first_line(text: str, limit: int = MAX_LINE_CHARS) -> str:
    """The first line that is not blank, and how many follow it: ``3 failed (+12 lines)``; ``(nothing)`` for none."""
    lines = [line for line in plain_text(text).splitlines() if line.strip()]
    if not lines:
        return "(nothing)"
    more = f" (+{len(lines) - 1} line{'s' if len(lines) > 2 else ''})" if len(lines) > 1 else ""
    return one_line(lines[0], limit - len(more)) + more
