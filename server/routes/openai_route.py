"""Routes for OpenAI's clients: every error in the one form that those read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from agent_core.errors import DrydockError
from server.doors.chat.replies import AGENT_FAILED, refusal_body
from server.doors.chat.turn import ChatFailedError
from server.errors import ConversationNotFoundError, ReplyError, problem_text
from server.routes.json_route import JsonRoute

logger = logging.getLogger(__name__)


class OpenAIRoute(JsonRoute):
    """A `JsonRoute` whose errors are ``{"error": {"message", "type", "param", "code"}}``.

    Chats are long, and no more than the first of their problems is looked for.
    """

    max_values: ClassVar[int] = 100_000

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler of a `JsonRoute`, its errors put in that form."""
        handle = super().get_route_handler()

        async def answered(request: Request) -> Response:
            try:
                return await handle(request)
            except RequestValidationError as error:
                return _invalid(error)
            except ReplyError as error:
                body = error.body if isinstance(error.body, dict) else {}
                message = str(body.get("message") or body.get("detail") or error)
                return _refused(error.status, message, param=body.get("param"), code=body.get("code"))
            except HTTPException as error:
                detail = error.detail
                if not isinstance(detail, str):
                    detail = "; ".join(str(one.get("msg", one)) for one in detail)  # type: ignore[unreachable] # see JsonRoute
                return _refused(400 if error.status_code == 422 else error.status_code, detail)
            except ConversationNotFoundError as error:
                return _refused(404, str(error))
            except ChatFailedError as error:
                return _refused(500, str(error), code=AGENT_FAILED)
            except DrydockError as error:
                return _refused(500, str(error))

        return answered


def _invalid(error: RequestValidationError) -> Response:
    """The finding that lies deepest: of what may have several forms, that is about the one that was meant."""
    problem = max(error.errors(), key=lambda one: len(one["loc"]))
    text = problem_text(problem).removeprefix("Value error, ")
    if problem["type"] == "json_invalid":
        return _refused(400, text)
    param = ".".join(str(part) for part in problem["loc"] if _is_name(part))
    return _refused(400, f"{param or 'body'}: {text}", param=param or None)


def _is_name(part: str | int) -> bool:
    """Whether it is a part of the place, and not the library's name for one of several forms."""
    return isinstance(part, int) or (part.isidentifier() and part not in {"body", "str"})


def _refused(status: int, message: str, *, param: str | None = None, code: str | None = None) -> Response:
    """The refusal. What has failed here fails again: OpenAI's clients would ask twice more on their own account."""
    headers = {"X-Should-Retry": "false"} if status >= 500 else None
    return JSONResponse(refusal_body(status, message, param=param, code=code), status, headers=headers)
