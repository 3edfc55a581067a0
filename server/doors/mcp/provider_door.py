"""The door for agents at ``/mcp/mcp``: pull and merge requests with their user's accounts."""

from __future__ import annotations

from typing import Any, Final

from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from agent_core.errors import DrydockError
from agent_core.tools.spec import ToolAnnotations
from agent_core.version import VERSION
from server.auth.identity import Authenticator
from server.db.conversations import id_problem
from server.doors.mcp.tools import Caller, DoorTool, Offer, ToolResult
from server.provider_tools.for_agents import SERVER_NAME, told
from server.provider_tools.making import RequestMaker
from server.provider_tools.tools import TOOLS, RequestArguments, RequestTool

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


class NotAllowedError(DrydockError):
    """The caller may not do this; the message says why."""


def provider_offer(maker: RequestMaker, authenticator: Authenticator) -> Offer:
    """All tools, for whoever the authenticator knows."""
    return Offer(SERVER_NAME, VERSION, tuple(_tool(one, maker, authenticator) for one in TOOLS.values()))


def _tool(tool: RequestTool, maker: RequestMaker, authenticator: Authenticator) -> DoorTool[RequestArguments]:
    async def call(arguments: RequestArguments, caller: Caller) -> ToolResult:
        identity = authenticator.identify(caller.headers)
        if identity is None:
            raise NotAllowedError("the request has no valid token")
        conversation_id = caller.headers.get(CONVERSATION_HEADER)
        if conversation_id is not None and (problem := id_problem(conversation_id)) is not None:
            raise NotAllowedError(f"{CONVERSATION_HEADER}: {problem}")
        made = await maker.make(tool, arguments, user_id=identity.user_id, conversation_id=conversation_id)
        return ToolResult(told(made), {"number": made.number, "url": made.url, "note": made.note})

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
