"""What a server's refusal says, whichever of the protocol's forms it has."""

from __future__ import annotations

import re
from typing import Any, Final

from drydock_client.errors import KeyRefusedError, RefusedError, kind_of

_FIELD: Final = re.compile(r"([a-z][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*): ")
KEY_FIX: Final = "Give the server's access token as api_key; the address that it prints when it starts has it."


def refusal(status: int, body: object) -> RefusedError:
    """The error for an answer of this status with this JSON (or text)."""
    message, field = _words(body)
    code = _text(body, "msg_id") or _text(body, "code")
    kind = kind_of(status)
    # A bare sentence is the word of a git provider, which refused another token than ours.
    fix = KEY_FIX if kind is KeyRefusedError and status == 401 and not (isinstance(body, str) and body) else ""
    message = message or f"The server answered with status {status}."
    return kind(message, status=status, field=field, code=code, fix=fix, body=body)


def is_wordless(body: object) -> bool:
    """Whether an answer says nothing in any of those forms, or what other servers say by default."""
    return _words(body)[0] in ("", "Not Found")


def _words(body: object) -> tuple[str, str]:
    if isinstance(body, str):
        return body.strip()[:2000], ""
    detail = body.get("detail") if isinstance(body, dict) else None
    if isinstance(detail, list):
        problems = [_problem(one) for one in detail if isinstance(one, dict)]
        if problems:
            return "; ".join(f"{field}: {text}" if field else text for field, text in problems), problems[0][0]
    message = _text(body, "error") or _text(body, "message") or (detail if isinstance(detail, str) else "")
    match = _FIELD.match(message)
    return message, match[1] if match else ""


def _problem(one: dict[str, Any]) -> tuple[str, str]:
    place = one.get("loc")
    parts = [str(part) for part in place[1:]] if isinstance(place, list) else []
    return ".".join(parts), str(one.get("msg", ""))


def _text(body: object, name: str) -> str:
    value = body.get(name) if isinstance(body, dict) else None
    return value if isinstance(value, str) else ""
