"""Routes for OpenAI's clients: every error in the one form that those read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from agent_core.errors import DrydockError
from server.chat.replies import refusal_body
from server.errors import ConversationNotFoundError, ReplyError
from server.routes.json_route import JsonRoute

logger = logging.getLogger(__name__)


class OpenAIRoute(JsonRoute):
    """A `JsonRoute` whose errors are ``{"error": {"message", "type", "param", "code"}}``."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler of a `JsonRoute`, its errors put in that form."""
        handle = super().get_route_handler()

        async def answered(request: Request) -> Response:
            try:
                return await handle(request)
            except RequestValidationError as error:
                problem = error.errors()[0]
                param = ".".join(str(part) for part in problem["loc"] if part != "body")
                return _refused(400, f"{param or 'body'}: {problem['msg']}", param=param or None)
            except ReplyError as error:
                body = error.body if isinstance(error.body, dict) else {}
                return _refused(error.status, str(body.get("message") or body.get("detail") or error))
            except HTTPException as error:
                detail = error.detail
                if not isinstance(detail, str):
                    detail = "; ".join(str(one.get("msg", one)) for one in detail)  # type: ignore[unreachable] # see JsonRoute
                return _refused(400 if error.status_code == 422 else error.status_code, detail)
            except ConversationNotFoundError as error:
                return _refused(404, str(error))
            except DrydockError as error:
                return _refused(500, str(error))

        return answered


def _refused(status: int, message: str, *, param: str | None = None) -> Response:
    return JSONResponse(refusal_body(status, message, param=param), status)
