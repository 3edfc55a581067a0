"""Errors of the server, and how every error becomes a reply."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from itertools import islice
from traceback import format_exception, format_tb
from typing import Any, ClassVar, Final

from fastapi import FastAPI, Request
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from agent_core.errors import (
    ClientToolError,
    DrydockError,
    EventStoreError,
    SandboxClosedError,
    SandboxError,
    StaleOwnerError,
    UnreadableError,
)
from agent_core.events.masking import SecretMasker
from agent_core.spelling import UNKNOWN_OPTION, meant_at
from agent_core.troubles import Trouble, coded, trouble_of

logger = logging.getLogger(__name__)

broke_off: Final = ContextVar("broke_off", default=False)
"""Set in the task of an answer that a sandbox broke off: the web server's complaint about it is not logged then."""

ANSWER_STATUS: Final = {"unknown": 404, "loading": 503}
"""The statuses of answers to calls that were not taken, by the code of the error; all others are conflicts."""

SENT: Final = "drydock.sent"
"""Key of a request's scope: the JSON value that its client has sent."""
_HIDDEN_TEXTS: Final = 200
"""Of a body with more texts than that, a fault's line shows nothing but the places."""
_ID: Final = "conversation_id"

ERROR_PAGES: Final = "/errors"
"""Path below which each code of an error has a page, for everybody."""

INTERNAL: Final = "Internal server error; the server's log has the details."

_KINDS: Final = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
_CODES: Final = {401: "invalid_api_key", 429: "rate_limit_exceeded"}

_SHOWN_PROBLEMS: Final = 3
"""As many fit into what clients show."""

_LISTED_PROBLEMS: Final = 100
"""As many are listed: writing out tens of thousands, of a small body, would hold everybody up."""

_STATUSES: Final = {
    "disk_reserve": 507,
    "disk_full": 507,
    "no_space": 507,
    "memory_ceiling": 503,
    "storage_unavailable": 503,
    "database_busy": 503,
    "held_back": 503,
    "waits_for_turn": 503,
}
"""By the codes of errors that may pass."""
RETRY_SECONDS: Final = 5

_FIXES: Final = {
    "missing": "send it",
    "extra_forbidden": "leave it out, or look at its spelling",
    "model_attributes_type": "send a JSON object with its fields",
    "dict_type": "send a JSON object with its fields",
}
"""What to do, for the problems of which pydantic's words say only what is wrong."""


class ServerError(DrydockError):
    """Base of the server's own errors."""


class ConfigurationError(ServerError):
    """The settings cannot be used; the message names the setting, its problem and what to do."""


class ConversationNotFoundError(ServerError):
    """There is no conversation of this id."""

    code: ClassVar[str] = "CONVERSATION$NOT_FOUND"

    def __init__(self, conversation_id: str) -> None:
        super().__init__(f"Conversation {conversation_id} not found")
        self.conversation_id = conversation_id


class ReadOnlyError(ServerError):
    """The conversation is shared with whoever asks for reading only."""

    code: ClassVar[str] = "read_only"

    def __init__(self) -> None:
        super().__init__("This conversation is shared with you for reading; ask its owner to let you write to it.")


class RunElsewhereError(ServerError):
    """Another server of the same database runs the conversation, since a moment ago."""

    code: ClassVar[str] = "run_elsewhere"

    def __init__(self, conversation_id: str) -> None:
        super().__init__(f"conversation {conversation_id} is run by another server since a moment ago; ask again")


class EndingError(ServerError):
    """The server is ending, or does not run the conversation any more: another one, or its next start, goes on."""

    code: ClassVar[str] = "server_ending"

    def __init__(self) -> None:
        super().__init__(
            "the server is shutting down, or another one goes on with this conversation; try again in a moment"
        )


class SentButKeptError(ServerError):
    """What was sent is stored for the server that runs the conversation, which has not taken it in time."""

    code: ClassVar[str] = "sent_but_kept"

    def __init__(self) -> None:
        super().__init__(
            "The server that runs this conversation does not answer. What you have sent is kept, and will be taken as "
            "soon as it does, or another one goes on with it: do not send it again."
        )


class AgentAtWorkError(ServerError):
    """It cannot be changed while its agent works."""

    code: ClassVar[str] = "at_work"

    def __init__(self, conversation_id: str) -> None:
        super().__init__(f"the agent of conversation {conversation_id} is at work; pause it first")


class PermissionDeniedError(ServerError):
    """Whoever asks may not do that: the message says what they, or their token, lack."""

    code: ClassVar[str] = "permission_denied"


class KeyReusedError(DrydockError):
    """An idempotency key came with something else than the first time."""


class KeyInUseError(DrydockError):
    """The first request with this idempotency key is still being carried out."""


class SessionError(ServerError):
    """A conversation cannot be loaded as its settings are; the message says why."""


class ReplyError(ServerError):
    """Ends a request with this status and JSON body, for the routes whose error shapes are their own."""

    def __init__(self, status: int, body: Any, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(f"reply {status}")
        self.status = status
        self.body = body
        self.headers = headers


class RefusedBodyError(HTTPException):
    """A body grew over the limit, or came too slowly; an application that handles it answers by itself."""

    def __init__(self, status: int, code: str, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, text, headers)
        self.code = code


class GitProviderError(ServerError):
    """A provider cannot be asked, or answers with an error or in an unknown form; the text is fit for users.

    A request that it ends is answered with that text as a JSON string.
    """

    reply_status: ClassVar[int] = 502

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        """The status of the provider's answer, where it is an unusual one."""

    @property
    def reply_headers(self) -> Mapping[str, str]:
        return {}


def install_error_replies(app: FastAPI, base_path: str = "") -> None:
    """Make `app` answer every error in the protocol's shapes; nothing internal ever reaches a client.

    Where an error has a code, its page is found below `base_path`.
    """

    async def answer(request: Request, error: Exception) -> Response:
        body, status, headers = _reply_to(request, error)
        return JSONResponse(_with_page(body, error, base_path), status, headers=headers)

    for kind in (DrydockError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, answer)


def page_of_code(code: str, base_path: str = "") -> str:
    """Where this server says what a code means and what to do."""
    return f"{base_path}{ERROR_PAGES}/{code}"


def code_of(error: BaseException | None) -> str:
    """The code under which an error has its page; "" where it has none."""
    if not isinstance(error, DrydockError | RefusedBodyError) or isinstance(error, SandboxClosedError):
        return ""
    return str(getattr(error, "code", ""))


def coded_page(code: str, base_path: str = "") -> dict[str, str]:
    """Fields of an answer: the code of what has happened, and where its page is; none without a code."""
    return {"code": code, "docs": page_of_code(code, base_path)} if code else {}


def _with_page(body: Any, error: Exception, base_path: str) -> Any:
    """`body` with the code of what has happened, where it has one, and where its page is."""
    if not isinstance(body, dict):
        return body
    cause = error.__cause__ if isinstance(error, ReplyError) else error
    if isinstance(cause, ConversationNotFoundError):  # in the protocol's own form, which has an id of its own for it
        return body
    return {**body, **coded_page(body.get("code") or code_of(cause), base_path)}


def _reply_to(request: Request, error: Exception) -> tuple[Any, int, Mapping[str, str] | None]:
    match error:
        case ReplyError():
            return error.body, error.status, error.headers or _retry_later(error.status)
        case GitProviderError():
            logger.info("%s %s: %s", request.method, request.url.path, error)
            return str(error), error.reply_status, dict(error.reply_headers)
        case ConversationNotFoundError():
            return {"detail": str(error)}, 404, None
        case RequestValidationError():
            # The input is left out, since it may hold a secret.
            found = error.errors()
            form = _form_of(request)
            problems = [
                {"type": e["type"], "loc": e["loc"], "msg": problem_text(e, form)} for e in found[:_LISTED_PROBLEMS]
            ]
            return problems_body(jsonable_encoder(problems), of=len(found)), 422, None
        case HTTPException():
            detail: Any = error.detail  # Starlette takes more than the text that it declares
            body = problems_body(detail) if isinstance(detail, list) else {"detail": detail}
            return body, error.status_code, error.headers
        case ReadOnlyError():
            return {"detail": str(error), "message": str(error), "code": error.code}, 403, None
        case RunElsewhereError():
            body = {"detail": str(error), "message": str(error), "code": error.code}
            return body, 503, {"Retry-After": "1"}
        case ClientToolError():
            body = {"success": False, "error": str(error), "detail": str(error), "code": error.code}
            return body, ANSWER_STATUS.get(error.code, 409), None
        case KeyReusedError() | KeyInUseError():
            # 422 with another request, 409 while the first one is still being carried out.
            status, code = (409, "key_in_use") if isinstance(error, KeyInUseError) else (422, "key_reused")
            return {"detail": str(error), "error": str(error), "code": code}, status, None
        case DrydockError():
            _write_down(request, error)
            status = status_of(error)
            return {"detail": str(error), "message": str(error)}, status, _retry_later(status)
    _write_down_fault(request, error)
    return {"detail": INTERNAL}, 500, None


def _write_down(request: Request, error: DrydockError) -> None:
    """Write a failed request to the log: in one line a minute where many fail for a reason that has a name."""
    code = trouble_of(error.code) if isinstance(error, SandboxError) else None
    text = f"{request.method} {request.url.path} failed: {error}"
    if code is None:
        logger.log(log_level(error), "%s", text)
        return
    request.app.state.services.metrics.trouble(code, text, request.path_params.get(_ID, ""))


def _write_down_fault(request: Request, error: Exception) -> None:
    """Write it to the log with its traceback, without what the client has sent: that may be a secret."""
    what, extra = f"{request.method} {request.url.path}", coded(Trouble.UNEXPECTED, request.path_params.get(_ID, ""))
    if SENT not in request.scope:
        logger.error("%s failed", what, exc_info=error, extra=extra)
        return
    sent = list(islice(_texts_in(request.scope[SENT]), _HIDDEN_TEXTS + 1))
    if len(sent) <= _HIDDEN_TEXTS:
        text = SecretMasker(sent).text("".join(format_exception(error)))
    else:
        text = "".join([*format_tb(error.__traceback__), type(error).__name__])
    logger.error("%s failed\n%s", what, text, extra=extra)


def _texts_in(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _texts_in(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts_in(one)


def _retry_later(status: int) -> Mapping[str, str] | None:
    return {"Retry-After": str(RETRY_SECONDS)} if status == 503 else None


def problems_body(problems: Sequence[Mapping[str, Any]], *, of: int | None = None) -> dict[str, Any]:
    """The body of a 422, with these problems `of` so many (None: all); `message` is what clients show."""
    return {"detail": problems, "message": _in_words(problems, len(problems) if of is None else of)}


def _in_words(problems: Sequence[Mapping[str, Any]], count: int) -> str:
    shown = []
    for problem in problems[:_SHOWN_PROBLEMS]:
        text = str(problem["msg"]).removeprefix("Value error, ")
        # The place of invalid JSON is no field, but a number of characters.
        names = [str(name) for name in problem["loc"][1:] if name != "[key]"]
        place = "" if problem["type"] == "json_invalid" else ".".join(names) or problem["loc"][0]
        shown.append(f"{place}: {text}" if place != "" else text)
    more = count - len(shown)
    return "; ".join([*shown, f"and {more} more"] if more else shown)


def _form_of(request: Request) -> Any:
    """The type of the body that the route of a request takes; None where it takes none."""
    field = getattr(request.scope.get("route"), "body_field", None)
    return field.field_info.annotation if field is not None else None


def problem_text(error: Mapping[str, Any], form: Any = None) -> str:
    """What is wrong, of one of pydantic's findings in a body of this form, and what to do about it."""
    if error["type"] == "json_invalid":
        return f"the body is no valid JSON: {error['ctx']['error']}"
    is_unknown = error["type"] == "extra_forbidden" and not error["msg"].startswith(UNKNOWN_OPTION)
    if is_unknown and form is not None and error["loc"][0] == "body":
        return f"there is no such field: {meant_at(form, error['loc'][1:])}"
    fix = _FIXES.get(error["type"])
    return f"{error['msg']}: {fix}" if fix is not None else str(error["msg"])


def status_of(error: Exception, otherwise: int = 500) -> int:
    """The status of the reply to an error that no route has an own one for."""
    if isinstance(error, UnreadableError | StaleOwnerError | EndingError):  # another server goes on with it
        return 503
    if isinstance(error, SentButKeptError):
        return 504
    code = error.code if isinstance(error, SandboxError | EventStoreError) else ""
    return _STATUSES.get(code, otherwise)


def log_level(error: DrydockError, otherwise: int = logging.WARNING) -> int:
    """The level of a line about a failed request; that nothing can be stored is said once, not by each of them."""
    return logging.DEBUG if isinstance(error, EventStoreError) and error.code else otherwise


def stored_problem(error: DrydockError, otherwise: str) -> str:
    """What a user is told who wanted something stored: what the storage lacks, or else only that it failed."""
    return str(error) if status_of(error) != 500 else otherwise


def refusal_body(
    status: int, message: str, *, param: str | None = None, code: str | None = None, base_path: str = ""
) -> dict[str, Any]:
    """An error as OpenAI's clients read it, with the kind, and where there is none the code, of such a status.

    Where it has a code, its page is found below `base_path`.
    """
    kind = _KINDS.get(status, "invalid_request_error" if status < 500 else "server_error")
    code = code or _CODES.get(status)
    return {
        "error": {"message": message, "type": kind, "param": param, "code": code, **coded_page(code or "", base_path)}
    }
