"""Errors between a program and its server: one small tree, and how a refusal becomes one."""

from __future__ import annotations

import difflib
import functools
import inspect
import re
from typing import Any, Final, TypeVar

ClassT = TypeVar("ClassT", bound=type[Any])


def spelled(cls: ClassT) -> ClassT:
    """Class decorator: a constructor that is given an option that it does not have says which was meant."""
    made = cls.__init__
    known = list(inspect.signature(made).parameters)[1:]

    @functools.wraps(made)
    def checked(self: Any, *args: Any, **options: Any) -> None:
        for name in sorted(options.keys() - set(known)):
            near = difflib.get_close_matches(name.lower(), known, n=1)
            meant = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            raise TypeError(f"{cls.__name__} has no option {name!r}: {meant}")
        made(self, *args, **options)

    cls.__init__ = checked
    return cls


class ClientError(Exception):
    """Base of all errors of this package: `message` for people, and `fix` where the message does not say it."""

    def __init__(self, message: str, *, fix: str = "") -> None:
        end = "" if message.endswith((".", "!", "?")) else "."
        super().__init__(f"{message}{end} {fix}" if fix else message)
        self.message = message
        self.fix = fix


class UnreachableError(ClientError):
    """No answer came: nothing listens there, or the connection broke. Whether the request was carried out is open."""


class LimitError(ClientError, TimeoutError):
    """A time limit passed; the message says which. What was asked for may still happen."""


class NotDrydockError(ClientError):
    """Something answered, in a form that no Drydock server uses: most often a wrong address."""


class RefusedError(ClientError):
    """The server refused or failed.

    Attributes:
        status: the HTTP status; where a live connection was refused, the one that stands for the same.
        field: the field that is the problem, such as ``title`` or ``mcp_config.sse_servers.0.url``.
        code: the server's id for the problem, such as ``CONVERSATION$NOT_FOUND``.
    """

    def __init__(
        self, message: str, *, status: int, field: str = "", code: str = "", fix: str = "", body: Any = None
    ) -> None:
        super().__init__(message, fix=fix)
        self.status = status
        self.field = field
        self.code = code
        self.body = body


class InvalidError(RefusedError):
    """The request cannot be carried out as it is (400, 413, 415, 422 and other 4xx)."""


class KeyRefusedError(RefusedError):
    """The server wants another key, or this one may not do that (401, 403)."""


class NotFoundError(RefusedError):
    """There is no such conversation, file or route (404, 410)."""


class ConflictError(RefusedError):
    """It stands against what is there already (409)."""


class BusyError(RefusedError):
    """Too much is asked for at a time, also after several attempts (429, 503)."""


class FailedError(RefusedError):
    """The server's fault (5xx); its log has the details."""


def kind_of(status: int) -> type[RefusedError]:
    """The class of errors for an HTTP status."""
    known = {401: KeyRefusedError, 403: KeyRefusedError, 404: NotFoundError, 410: NotFoundError, 409: ConflictError}
    known |= {429: BusyError, 503: BusyError}
    return known.get(status) or (FailedError if status >= 500 else InvalidError)


_FIELD: Final = re.compile(r"([a-z][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*): ")
KEY_FIX: Final = "Give the server's access token as api_key; the address that it prints when it starts has it."


def refusal(status: int, body: object) -> RefusedError:
    """The error for an answer of this status with this JSON (or text), in any of the protocol's forms."""
    message, field = _words(body)
    code = _text(body, "msg_id") or _text(body, "code")
    kind = kind_of(status)
    # A bare sentence is the word of a git provider, which refused another token than ours.
    fix = KEY_FIX if kind is KeyRefusedError and status == 401 and not (isinstance(body, str) and body) else ""
    message = message or f"The server answered with status {status}."
    return kind(message, status=status, field=field, code=code, fix=fix, body=body)


def is_wordless(body: object) -> bool:
    """Whether an answer says nothing, or what other servers say by default."""
    return _words(body)[0] in ("", "Not Found")


def _words(body: object) -> tuple[str, str]:
    if isinstance(body, str):
        return body.strip()[:2000], ""
    detail = body.get("detail") if isinstance(body, dict) else None
    if isinstance(detail, list):
        entries = [(one.get("loc"), str(one.get("msg", ""))) for one in detail if isinstance(one, dict)]
        problems = [(".".join(map(str, at[1:])) if isinstance(at, list) else "", text) for at, text in entries]
        if problems:
            return "; ".join(f"{field}: {text}" if field else text for field, text in problems), problems[0][0]
    message = _text(body, "error") or _text(body, "message") or (detail if isinstance(detail, str) else "")
    match = _FIELD.match(message)
    return message, match[1] if match else ""


def _text(body: object, name: str) -> str:
    value = body.get(name) if isinstance(body, dict) else None
    return value if isinstance(value, str) else ""
