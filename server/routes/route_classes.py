"""Classes of routes: strict JSON with tags, and watched ones, whose work ends when the client has gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from email.message import Message
from typing import Any, ClassVar, Final, TypeVar

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from agent_core.troubles import CONVERSATION
from server.errors import SENT
from server.http.files import IN_DOCUMENT, tagged
from server.routes.audited import AUDITED
from server.wire.errors import WireError
from server.wire.json_data import MAX_VALUES, read_document

T = TypeVar("T")
Handler = Callable[[Request], Coroutine[Any, Any, Response]]

CLIENT_GONE: Final = 499
"""Nobody sees this status; logs do."""


class JsonRoute(APIRoute):
    """An `APIRoute` whose body is read strictly.

    No NaN or infinite number, no NUL character, no half character, nothing nested without end: what no store and no
    client could carry is a 422 that names the place. Another content type than JSON is one that says what to send.

    What the audit log tells of (`AUDITED`) has its record with it.

    The answers to GET have an ``ETag``; a request that names it in ``If-None-Match`` is answered 304 as long as nothing
    has changed (an addition to the protocol).
    """

    max_values: ClassVar[int] = MAX_VALUES

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        if options.get("methods") is not None and set(options["methods"]) == {"GET"}:
            options["responses"] = {304: {"description": "`If-None-Match` names it: nothing has changed"}} | (
                options.get("responses") or {}
            )
            options["openapi_extra"] = IN_DOCUMENT | (options.get("openapi_extra") or {})
        super().__init__(path, endpoint, **options)

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()
        audited = next((AUDITED[one, self.path] for one in self.methods or () if (one, self.path) in AUDITED), None)

        async def strictly(request: Request) -> Response:
            CONVERSATION.set(request.path_params.get("conversation_id", ""))
            strict = _StrictRequest(request.scope, request.receive)
            strict.max_values = self.max_values
            is_json = self.body_field is None or _is_json(request.headers.get("content-type", ""))
            if not is_json and await strict.body():
                raise _refusal(["header", "content-type"], "send JSON with the header Content-Type: application/json")
            response = await (handle(strict) if audited is None else audited.recorded(strict, handle))
            return tagged(response, request.headers) if request.method == "GET" else response

        return strictly


class WatchedRoute(APIRoute):
    """An `APIRoute` whose handler of GET is cancelled when its client has gone: what it asked the sandbox for ends."""

    def get_route_handler(self) -> Handler:
        return _watched(super().get_route_handler())


class WatchedJsonRoute(JsonRoute):
    """A `JsonRoute` that is watched like a `WatchedRoute`."""

    def get_route_handler(self) -> Handler:
        return _watched(super().get_route_handler())


def make_router(prefix: str = "", *, route_class: type[APIRoute] = JsonRoute, **options: Any) -> APIRouter:
    """A group of routes, complete as they are: another router takes its `routes`.

    `include_router` would build each of them again, which costs the first request to them 1 ms for each.
    """
    return APIRouter(prefix=prefix, route_class=route_class, generate_unique_id_function=operation_id, **options)


def operation_id(route: APIRoute) -> str:
    """The stable name of a route, from which clients make the names of their functions: that of its handler."""
    return f"chat_{route.name}" if route.path.startswith("/v1/") else route.name


class _StrictRequest(Request):
    max_values = MAX_VALUES

    async def json(self) -> Any:
        """The body's value; a body that is no JSON at all is left to FastAPI to report."""
        try:
            value = self.scope[SENT] = await read_document(await self.body(), max_values=self.max_values)
            return value
        except WireError as error:
            raise _refusal(["body"], str(error)) from error


def _is_json(content_type: str) -> bool:
    header = Message()
    header["content-type"] = content_type or "text/plain"
    subtype = header.get_content_subtype()
    return header.get_content_maintype() == "application" and (subtype == "json" or subtype.endswith("+json"))


def _refusal(place: list[str], problem: str) -> HTTPException:
    return HTTPException(422, [{"type": "value_error", "loc": place, "msg": problem}])  # type: ignore[arg-type]


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled when the client has gone; raises `ClientDisconnect` then."""
    working = asyncio.create_task(work, name="watched-request")
    leaving = asyncio.create_task(_gone(request), name="watched-client")
    try:
        await asyncio.wait([working, leaving], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnect
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.wait([working, leaving])
        if not working.cancelled():
            working.exception()  # whatever it was, nobody is there to be told


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        continue


def _watched(handle: Handler) -> Handler:
    async def watched(request: Request) -> Response:
        if request.method != "GET":
            return await handle(request)  # it reads what its client sends, and sees by that when it is gone
        try:
            return await while_connected(request, handle(request))
        except ClientDisconnect:
            return Response(status_code=CLIENT_GONE)

    return watched
