"""Reads what ``git status --porcelain=v1 --no-renames`` prints (wire-protocol 4.4)."""

from __future__ import annotations

import re

_LINE = re.compile(r"([ MADUT?!]{2}) (.+)")
_ESCAPE = re.compile(r"\\([abtnvfr\"\\]|[0-7]{3})")
_NAMED = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}
_CONFLICTS = frozenset({"DD", "AU", "UD", "UA", "DU", "AA", "UU"})


def parse_status(output: str) -> list[dict[str, str]]:
    """``{"status": M|A|D|U, "path": …}`` for each changed file; untracked files count as added."""
    changes = []
    for line in output.splitlines():
        match = _LINE.fullmatch(line.rstrip("\r"))
        if match is not None and match[1] != "!!":
            changes.append({"status": _status(match[1]), "path": _unquoted(match[2])})
    return changes


def _status(code: str) -> str:
    if code in _CONFLICTS:
        return "U"
    if code == "??" or "A" in code:
        return "A"
    return "D" if "D" in code else "M"


def _unquoted(path: str) -> str:
    """Git puts names with unusual characters in quotes, escaped as in C."""
    if not (len(path) >= 2 and path[0] == path[-1] == '"'):
        return path
    raw = bytearray()
    rest = path[1:-1]
    while match := _ESCAPE.search(rest):
        raw += rest[: match.start()].encode()
        raw.append(_NAMED[match[1]] if match[1] in _NAMED else int(match[1], 8) & 0xFF)
        rest = rest[match.end() :]
    raw += rest.encode()
    return raw.decode("utf-8", "replace")
