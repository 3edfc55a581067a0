"""Where the door for agents is found (4.9). What it speaks is a protocol of its own, so it is no part of the API."""

from __future__ import annotations

from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from server.dependencies import Services
from server.doors.mcp.provider_door import PATH


class _Door:
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        services: Services = scope["app"].state.services
        await services.provider_door(scope, receive, send)


routes: list[BaseRoute] = [Route(path, _Door()) for path in (PATH, f"{PATH}/")]
