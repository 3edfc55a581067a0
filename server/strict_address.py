"""Addresses of requests: what is no text, or holds what nobody can store, is refused before any route reads it.

The library would put a replacement character in its place and go on with another text than the client meant.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote_to_bytes

from starlette.types import Scope

from server.errors import problems_body

_MAX_NAME = 80


def address_problem(scope: Scope) -> tuple[int, dict[str, Any]] | None:
    """The status and the body of the refusal of a request's path or query; None where there is nothing to refuse."""
    raw_path: bytes = scope.get("raw_path") or b""
    if b"%" in raw_path and _text(raw_path) is None:
        return 400, {"detail": "path: holds bytes that are no UTF-8; percent-encode text as UTF-8"}
    if b"%00" in raw_path and not _is_in_id(raw_path):
        return 400, {"detail": "path: holds a NUL character; leave it out"}
    query: bytes = scope.get("query_string", b"")
    if query.isascii() and b"%" not in query:
        return None
    for part in query.split(b"&"):
        name, _, value = part.partition(b"=")
        problem = _problem(name) or _problem(value)
        if problem is not None:
            shown = (_text(name) or "").replace("\0", "")[:_MAX_NAME]
            return 422, problems_body([{"type": "value_error", "loc": ["query", shown], "msg": problem}])
    return None


def _is_in_id(raw_path: bytes) -> bool:
    """Whether the NUL is in the id of a conversation, of which the protocol has words of its own (4.3)."""
    return b"%00" in raw_path.removeprefix(b"/api/conversations/").split(b"/")[0]


def _problem(raw: bytes) -> str | None:
    text = _text(raw)
    if text is None:
        return "holds bytes that are no UTF-8; percent-encode text as UTF-8"
    return "holds a NUL character; leave it out" if "\0" in text else None


def _text(raw: bytes) -> str | None:
    try:
        return unquote_to_bytes(raw).decode("utf-8")
    except UnicodeDecodeError:
        return None
