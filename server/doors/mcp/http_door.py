"""MCP over streamable HTTP, and what is served so at ``/mcp/mcp``: pull and merge requests with users' accounts."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Self

from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent_core.errors import DrydockError
from agent_core.tools.spec import ToolAnnotations
from agent_core.version import VERSION
from server.auth.identity import Authenticator
from server.db.repositories.conversations import id_problem
from server.doors.mcp import sdk
from server.doors.mcp.sdk import Caller, DoorTool, Offer, ToolResult
from server.git_providers.request_tools import SERVER_NAME, TOOLS, RequestArguments, RequestMaker, RequestTool, summary
from server.wire.errors import WireError
from server.wire.json_data import check_value_count

END_SECONDS = 5.0
PATH: Final = "/mcp/mcp"
CONVERSATION_HEADER: Final = "x-openhands-serverconversation-id"
"""Names the conversation that a call is of; its user must be the caller."""

_OUTPUT: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "number": {"type": "integer", "description": "Its number in the repository"},
        "url": {"type": "string", "description": "Its page"},
        "note": {"type": "string", "description": "What of the wish could not be done"},
    },
    "required": ["number", "url", "note"],
}
_threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mcp-server-import")


class HttpDoor:
    """An ASGI application without sessions (a GET is a 405), loaded by its first request. Leaving ends all calls."""

    def __init__(self, offer: Offer, *, max_bytes: int) -> None:
        self._offer = offer
        self._max_bytes = max_bytes
        self._opening: asyncio.Task[None] | None = None
        self._app: ASGIApp | None = None
        self._is_open = asyncio.Event()
        self._is_over = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *details: object) -> None:
        self._is_over.set()
        if self._opening is None:
            return
        _, late = await asyncio.wait([self._opening], timeout=END_SECONDS)
        for task in late:
            task.cancel()
            await asyncio.wait([task], timeout=END_SECONDS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            await _refusal("Method Not Allowed: send messages with POST", 405)(scope, receive, send)
            return
        if self._opening is None:
            self._opening = asyncio.create_task(self._serve(), name=f"mcp-door:{self._offer.name}")
        opened = asyncio.create_task(self._is_open.wait(), name="mcp-door-opened")
        try:
            await asyncio.wait([opened, self._opening], return_when=asyncio.FIRST_COMPLETED)
        finally:
            opened.cancel()
        if self._app is None:
            await JSONResponse({"detail": "The server is starting or ending."}, 503)(scope, receive, send)
            return
        body, is_whole = bytearray(), False
        while not is_whole:
            message = await receive()
            if message["type"] != "http.request":
                return
            body += message.get("body", b"")
            is_whole = not message.get("more_body", False) or len(body) > self._max_bytes
        data = bytes(body)
        messages: list[Message] = [{"type": "http.request", "body": data, "more_body": False}]

        async def receive_again() -> Message:
            return messages.pop() if messages else await receive()

        try:
            await check_value_count(data)
        except WireError as error:
            await _refusal(f"Invalid Request: {error}", 400)(scope, receive, send)
            return
        await self._app(scope, receive_again, send)

    async def _serve(self) -> None:
        await asyncio.get_running_loop().run_in_executor(_threads, sdk.load)
        async with sdk.serving_http(self._offer, max_bytes=self._max_bytes) as self._app:
            self._is_open.set()
            await self._is_over.wait()
            self._app = None


def _refusal(message: str, status: int) -> JSONResponse:
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": message}}
    return JSONResponse(body, status, headers={"Allow": "POST"} if status == 405 else None)


class NotAllowedError(DrydockError):
    """The caller may not do this; the message says why."""


def provider_offer(maker: RequestMaker, authenticator: Authenticator) -> Offer:
    """All tools, for whoever the authenticator knows."""
    return Offer(SERVER_NAME, VERSION, tuple(_tool(one, maker, authenticator) for one in TOOLS.values()))


def _tool(tool: RequestTool, maker: RequestMaker, authenticator: Authenticator) -> DoorTool[RequestArguments]:
    async def call(arguments: RequestArguments, caller: Caller) -> ToolResult:
        identity = await authenticator.identify(caller.headers)
        if identity is None:
            raise NotAllowedError("the request has no valid token")
        conversation_id = caller.headers.get(CONVERSATION_HEADER)
        if conversation_id is not None and (problem := id_problem(conversation_id)) is not None:
            raise NotAllowedError(f"{CONVERSATION_HEADER}: {problem}")
        request = await maker.make(tool, arguments, user_id=identity.user_id, conversation_id=conversation_id)
        return ToolResult(summary(request), {"number": request.number, "url": request.url, "note": request.note})

    return DoorTool(
        name=tool.name,
        description=tool.description,
        arguments=tool.arguments,
        parameters=tool.parameters,
        annotations=ToolAnnotations(title=tool.title, destructiveHint=False),
        call=call,
        output=_OUTPUT,
    )


class _Door:
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        door: ASGIApp = scope["app"].state.services.provider_door
        await door(scope, receive, send)


PROVIDER_ROUTES: Final[list[BaseRoute]] = [Route(path, _Door()) for path in (PATH, f"{PATH}/")]
"""Where the door is found; what it speaks is a protocol of its own, so it is no part of the API's document."""
