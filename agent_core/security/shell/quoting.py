"""The escapes of ``$'…'``, and words written back as shell text."""

from __future__ import annotations

import re

_ESCAPE = re.compile(
    r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3})|c(.)|(.))", re.DOTALL
)
_LETTERS = {"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_LAST_CHARACTER = 0x10FFFF


def decode_ansi_c(text: str) -> str:
    r"""What ``$'text'`` stands for; as in bash, a NUL ends it."""
    return decode_escapes(text).split("\0", 1)[0]


def decode_escapes(text: str) -> str:
    """A text with its escapes decoded; a NUL is kept, and so makes the text one that is not known."""
    return _ESCAPE.sub(_decoded, text)


def _decoded(found: re.Match[str]) -> str:
    hexadecimal = found[1] or found[2] or found[3]
    if hexadecimal or found[4]:
        number = int(hexadecimal, 16) if hexadecimal else int(found[4], 8) & 0xFF
        return chr(number) if number <= _LAST_CHARACTER and not 0xD800 <= number < 0xE000 else "\ufffd"
    if found[5]:
        return chr(ord(found[5]) & 0x1F)
    return _LETTERS.get(found[6], found[6] if found[6] in "\\'\"?" else "\\" + found[6])
