"""How control characters and escape sequences of terminals are written."""

from __future__ import annotations

import re

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_ASCII_CONTROLS = bytes(set(range(32)) - {9, 10}) + b"\x7f"
_IDLE = bytes(set(range(32)) - set(b"\b\t\n\v\f\r\x1b")) + b"\x7f"
_IDLE_OR_HIGH = re.compile("[\x00-\x07\x0e-\x1a\x1c-\x1f\x7f-\x9f]+")
COLOUR = re.compile("\x1b\\[[0-9;:]{0,64}m")
TOKEN = re.compile(
    "(?P<text>[^\x00-\x08\x0a-\x1f\x7f-\x9f]+)"
    "|(?P<newline>[\n\x0b\x0c]+)"
    "|(?P<return>\r+)"
    "|(?P<back>\x08+)"
    "|\x1b\\[(?P<parameters>[0-?]{0,256})[ -/]{0,16}(?P<final>[@-~])"
    "|(?P<string>\x1b[\\]PX^_])"
    "|\x1b\\((?P<letters>[0-~])"
    "|\x1b[ -/]{1,16}[0-~]"
    "|\x1b(?P<escape>[0-~])"
    "|[\x00-\x07\x0e-\x1a\x1c-\x1f\x7f-\x9f]+"
    "|\x1b"
)
INCOMPLETE = re.compile("(?:\x1b(?:\\[[0-?]{0,256}[ -/]{0,16}|[ -/]{0,16})|\r)\\Z")
STRING_END = re.compile("[\x07\x18\x1a]|\x1b\\\\|(?=[\n\x1b])")
LONGEST_INCOMPLETE = 280


def is_plain(text: str) -> bool:
    """True when the text holds no control character but newlines and tabs."""
    if text.isascii():  # several times faster than the expression, and the usual case of a flood
        return len(text.encode("ascii").translate(None, _ASCII_CONTROLS)) == len(text)
    return _CONTROLS.search(text) is None


def without_idle(text: str) -> str:
    """Return a text that holds no escape sequence without the control characters that have no effect, NUL above all."""
    if text.isascii():
        return text.encode("ascii").translate(None, _IDLE).decode("ascii")
    return _IDLE_OR_HIGH.sub("", text)
