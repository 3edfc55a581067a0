"""What `echo -e` and `printf` print."""

from __future__ import annotations

import re
from typing import Final

from agent_core.security.shell.marks import derived, is_known
from agent_core.security.shell.numbers import computed
from agent_core.security.shell.quoting import decode_escapes

MAX_PRINTED: Final = 100_000
MAX_WIDTH: Final = 1_000
_DIRECTIVE = re.compile(r"%(?:(%)|([-+ #0]*)(\*|\d*)(?:\.(\*|\d*))?([a-zA-Z]|\(.*?\)T))")
_ESCAPE = re.compile(r"\\(?:0([0-7]{1,3})|.)", re.DOTALL)
_IN_BASE: Final = {"d": "d", "i": "d", "u": "d", "o": "o", "x": "x", "X": "X"}


def decode_echo(text: str) -> tuple[str, bool]:
    r"""A text with its escapes as `echo -e` and ``%b`` read them, and whether a ``\c`` has ended it."""
    end = next((found.start() for found in _ESCAPE.finditer(text) if found.group() == "\\c"), None)
    octal = _ESCAPE.sub(lambda found: f"\\{found[1]}" if found[1] else found.group(), text[:end])
    return decode_escapes(octal), end is not None


def printed_by(form: str, values: list[str]) -> str:
    """What `printf` prints: the format, as often as it takes to use all values."""
    rest = list(values)
    printed = ""
    while True:
        before = len(rest)
        printed += _printed_once(form, rest)
        if not rest or len(rest) == before or len(printed) > MAX_PRINTED:
            return printed


def _printed_once(form: str, rest: list[str]) -> str:
    pieces: list[str] = []
    position = 0
    for found in _DIRECTIVE.finditer(form):
        pieces.extend((decode_escapes(form[position : found.start()]), _converted(found, rest)))
        position = found.end()
    return "".join([*pieces, decode_escapes(form[position:])])


def _converted(found: re.Match[str], rest: list[str]) -> str:
    if found[1]:
        return "%"
    width, precision = (_taken(rest) if given == "*" else given for given in (found[3], found[4]))
    value = _taken(rest)
    kind = found[5]
    if kind in {"s", "b"}:
        text = decode_echo(value)[0] if kind == "b" else value
    elif kind == "c":
        text = value[:1]
    else:
        number = computed(value) if value else 0
        if kind not in _IN_BASE or number is None or number < 0 or found[2] or precision:
            return derived(value)
        text, precision = format(number, _IN_BASE[kind]), None
    if precision is not None:
        text = text[: int(precision)] if precision.isdigit() else "" if not precision else derived(text)
    if not width:
        return text
    if not width.isdigit() or int(width) > MAX_WIDTH or not is_known(text):
        return derived(text)
    return text.ljust(int(width)) if "-" in found[2] else text.rjust(int(width))


def _taken(rest: list[str]) -> str:
    return rest.pop(0) if rest else ""
