"""Routes that ask a sandbox: what is asked for ends when the client that has asked is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from server.routes.json_route import JsonRoute

Handler = Callable[[Request], Coroutine[Any, Any, Response]]

CLIENT_GONE: Final = 499
"""Nobody sees this status; logs do."""


class WatchedRoute(APIRoute):
    """An `APIRoute` whose handler of GET is cancelled when its client has gone: what it asked the sandbox for ends."""

    def get_route_handler(self) -> Handler:
        """The library's handler, watched."""
        return _watched(super().get_route_handler())


class WatchedJsonRoute(JsonRoute):
    """A `JsonRoute` that is watched like a `WatchedRoute`."""

    def get_route_handler(self) -> Handler:
        """The handler of a `JsonRoute`, watched."""
        return _watched(super().get_route_handler())


def _watched(handle: Handler) -> Handler:
    async def watched(request: Request) -> Response:
        if request.method != "GET":
            return await handle(request)  # it reads what its client sends, and sees by that when it is gone
        handling = asyncio.create_task(handle(request), name="watched-request")
        leaving = asyncio.create_task(_gone(request), name="watched-client")
        try:
            await asyncio.wait([handling, leaving], return_when=asyncio.FIRST_COMPLETED)
            if handling.done():
                return handling.result()
            return Response(status_code=CLIENT_GONE)
        finally:
            handling.cancel()
            leaving.cancel()
            await asyncio.wait([handling, leaving])
            if not handling.cancelled():
                handling.exception()  # whatever it was, nobody is there to be told

    return watched


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        continue
