"""The tools of a conversation's clients, shown and replaced after its creation (an addition to the protocol)."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from server.dependencies import OwnConversation, ServicesDependency, conversation_not_found
from server.errors import ReplyError
from server.routes.json_route import JsonRoute
from server.routes.paging import LINKED, PagingDependency
from server.routes.replies.conversations import ClientToolsReply
from server.routes.replies.errors import errors
from server.session.client_tools import CLIENT_TOOLS, ClientTools

router = APIRouter(prefix="/api/conversations/{conversation_id}/client-tools", route_class=JsonRoute)


class ToolsChange(BaseModel):
    """The body of a change: all tools that there are from now on."""

    model_config = ConfigDict(extra="forbid")

    client_tools: ClientTools


@router.get("", response_model=ClientToolsReply, responses={200: LINKED})
async def list_tools(record: OwnConversation, paging: PagingDependency) -> dict[str, Any]:
    """Those that are declared, in their order."""
    placed = enumerate(record.options.get(CLIENT_TOOLS) or ())
    return {"client_tools": [tool for _, tool in paging.linked(paging.cut(placed, lambda one: one[:1], int))]}


@router.put("", response_model=ClientToolsReply, responses=errors(409))
async def replace_tools(record: OwnConversation, services: ServicesDependency, body: ToolsChange) -> dict[str, Any]:
    """Declare others in their place; a call that is being carried out goes on."""
    try:
        is_there = await services.manager.set_client_tools(record.id, body.client_tools)
    except ValueError as error:
        raise ReplyError(409, {"success": False, "error": str(error), "detail": str(error)}) from error
    if not is_there:
        raise conversation_not_found(record.id)
    return {"client_tools": [one.model_dump(mode="json") for one in body.client_tools]}
