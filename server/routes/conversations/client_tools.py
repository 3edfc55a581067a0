"""The tools that clients carry out: shown, declared and answered (additions to the protocol)."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path
from pydantic import BaseModel

from server.dependencies import OwnConversation, ServicesDependency, conversation_not_found
from server.errors import ReplyError
from server.routes.conversations.events import Done
from server.routes.query import LINKED, PagingDependency
from server.routes.replies import errors
from server.routes.route_classes import make_router
from server.session.client_tools import CLIENT_TOOLS, ClientTools
from server.wire.errors import WireError
from server.wire.fields import ResultArgs
from server.wire.incoming import result_event

router = make_router("/api/conversations/{conversation_id}")


class ClientToolsReply(BaseModel):
    """The tools that clients of a conversation carry out."""

    client_tools: list[dict[str, Any]]


class ToolsChange(BaseModel, extra="forbid"):
    """The body of a change: all tools that there are from now on."""

    client_tools: ClientTools


@router.get("/client-tools", response_model=ClientToolsReply, responses={200: LINKED})
async def list_tools(record: OwnConversation, paging: PagingDependency) -> dict[str, Any]:
    """Those that are declared, in their order."""
    placed = enumerate(record.options.get(CLIENT_TOOLS) or ())
    return {"client_tools": [tool for _, tool in paging.linked(placed, lambda one: one[:1], int)]}


@router.put("/client-tools", response_model=ClientToolsReply, responses=errors(409))
async def replace_tools(record: OwnConversation, services: ServicesDependency, body: ToolsChange) -> dict[str, Any]:
    """Declare others in their place; a call that is being carried out goes on."""
    try:
        is_there = await services.manager.set_client_tools(record.id, body.client_tools)
    except ValueError as error:
        raise _refusal(409, str(error)) from error
    if not is_there:
        raise conversation_not_found(record.id)
    return {"client_tools": [one.model_dump(mode="json") for one in body.client_tools]}


@router.post("/tool-calls/{call_id}", response_model=Done, responses=errors(409, 503))
async def answer_call(
    record: OwnConversation, services: ServicesDependency, call_id: Annotated[int, Path(ge=0)], body: ResultArgs
) -> dict[str, Any]:
    """Say what came of a call; saying the same again is harmless."""
    try:
        result = result_event(call_id, body)
    except WireError as error:
        raise _refusal(422, str(error).removeprefix("args.")) from error
    await services.manager.send(record.id, result)
    return {"success": True}


def _refusal(status: int, text: str) -> ReplyError:
    return ReplyError(status, {"success": False, "error": text, "detail": text})
