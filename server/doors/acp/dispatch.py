"""From a method's name to what answers it; parameters of the wrong form are refused by field."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from acp.exceptions import RequestError
from pydantic import BaseModel, ValidationError

from drydock_client import ClientError, KeyRefusedError, NotFoundError, RefusedError
from server.settings.running_server import words_of

logger = logging.getLogger(__name__)

INVALID_PARAMS, INTERNAL_ERROR, AUTH_REQUIRED, NOT_FOUND = -32602, -32603, -32000, -32002
MAX_PROBLEMS = 10

Answer = Callable[[Any], Awaitable[BaseModel | None]]


class Method(NamedTuple):
    """The form of a method's parameters, and what answers it."""

    form: type[BaseModel]
    answer: Answer


class Dispatcher:
    """Called with each request and notification; raises `RequestError` only."""

    def __init__(self, requests: Mapping[str, Method], notifications: Mapping[str, Method]) -> None:
        self._methods = {False: requests, True: notifications}

    async def __call__(self, method: str, params: Any, is_notification: bool) -> dict[str, Any] | None:
        known = self._methods[is_notification]
        found = known.get(method)
        if found is None:
            raise RequestError(-32601, f"{method[:100]}: no such method; there are {', '.join(known)}")
        try:
            wish = found.form.model_validate({} if params is None else params)
        except ValidationError as error:
            raise invalid_form(error) from None
        try:
            answer = await found.answer(wish)
        except ClientError as error:
            raise from_server(error) from error
        return {} if answer is None else plain(answer)


def plain(form: BaseModel) -> dict[str, Any]:
    """A form as JSON, without what was not said."""
    dumped: dict[str, Any] = form.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True)
    return dumped


def invalid(field: str, problem: str) -> RequestError:
    """A value that cannot be used; `problem` says what it is, and what to do."""
    return RequestError(INVALID_PARAMS, f"{field}: {problem}", {"field": field})


def invalid_form(error: ValidationError) -> RequestError:
    """Parameters of the wrong form: what is wrong, by field."""
    problems = [
        {"field": ".".join(str(part) for part in one["loc"]) or "params", "problem": one["msg"]}
        for one in error.errors(include_url=False, include_context=False, include_input=False)[:MAX_PROBLEMS]
    ]
    text = "; ".join(f"{one['field']}: {one['problem']}" for one in problems)
    return RequestError(INVALID_PARAMS, text, {"errors": problems})


def from_server(error: ClientError) -> RequestError:
    """What the Drydock server refused, or that it could not be asked."""
    match error:
        case KeyRefusedError():
            return RequestError(AUTH_REQUIRED, f"Authentication required: {words_of(error)}")
        case NotFoundError():
            return RequestError(NOT_FOUND, str(error))
        case RefusedError():
            code = INVALID_PARAMS if error.status < 500 else INTERNAL_ERROR
            return RequestError(code, str(error), {"field": error.field} if error.field else None)
        case _:
            return RequestError(INTERNAL_ERROR, words_of(error))
