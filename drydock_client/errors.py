"""What can go wrong between a program and its server: one small tree."""

from __future__ import annotations

from typing import Any


class ClientError(Exception):
    """Base of all errors of this package.

    Attributes:
        message: what went wrong, in words for people.
        fix: what to do about it; empty where the message says it.
    """

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
        field: the field that is the problem, such as ``title`` or ``mcp_config.sse_servers.0.url``; else empty.
        code: the server's id for the problem, such as ``CONVERSATION$NOT_FOUND``; empty where it has none.
        body: the answer as it was.
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
