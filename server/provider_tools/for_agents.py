"""The tools as the agent of one conversation has them: called in this process, without a connection.

The same tools are served at ``/mcp/mcp``; an agent of this server need not go that way, and waits for nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pydantic import BaseModel

from agent_core.mcp.tool import OwnTool, own_tool
from agent_core.tools.spec import ToolAnnotations
from server.db.conversations import ConversationRecord
from server.db.user_settings import StoredSettings
from server.git_providers.kinds import known_tokens
from server.git_providers.model import MadeRequest
from server.provider_tools.making import RequestMaker
from server.provider_tools.tools import TOOLS, RequestTool

SERVER_NAME = "drydock"


def agent_tools(maker: RequestMaker, record: ConversationRecord, user: StoredSettings | None) -> tuple[OwnTool, ...]:
    """The protocol's tools, and those of the additions that the user has an account for."""
    accounts = known_tokens(user.provider_tokens if user is not None else {})
    offered = [tool for tool in TOOLS.values() if not tool.is_addition or accounts.keys() & set(tool.providers)]
    return tuple(
        own_tool(
            tool.name,
            tool.description,
            tool.arguments,
            _runner(maker, tool, record),
            parameters=tool.parameters,
            annotations=ToolAnnotations(title=tool.title, destructiveHint=False),
            server=SERVER_NAME,
        )
        for tool in offered
    )


def told(made: MadeRequest) -> str:
    """What an agent is told: the address of the request, and what of the wish could not be done."""
    return f"{made.url}\n({made.note})" if made.note else made.url


def _runner(
    maker: RequestMaker, tool: RequestTool, record: ConversationRecord
) -> Callable[[BaseModel], Awaitable[str]]:
    async def run(arguments: BaseModel) -> str:
        checked = tool.arguments.model_validate(arguments.model_dump())
        return told(await maker.make(tool, checked, user_id=record.user_id, conversation_id=record.id))

    return run
