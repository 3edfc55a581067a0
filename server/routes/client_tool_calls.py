"""Answers to the calls of tools that clients carry out, over REST (an addition to the protocol)."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path

from server.dependencies import OwnConversation, ServicesDependency
from server.errors import ReplyError
from server.routes.json_route import JsonRoute
from server.routes.replies.errors import errors
from server.routes.replies.events import Done
from server.wire.errors import WireError
from server.wire.fields import ResultArgs
from server.wire.incoming import result_event

router = APIRouter(prefix="/api/conversations/{conversation_id}/tool-calls", route_class=JsonRoute)


@router.post("/{call_id}", response_model=Done, responses=errors(409, 503))
async def answer_call(
    record: OwnConversation, services: ServicesDependency, call_id: Annotated[int, Path(ge=0)], body: ResultArgs
) -> dict[str, Any]:
    """Say what came of a call; saying the same again is harmless."""
    try:
        result = result_event(call_id, body)
    except WireError as error:
        problem = str(error).removeprefix("args.")
        raise ReplyError(422, {"success": False, "error": problem, "detail": problem}) from error
    await services.manager.send(record.id, result)
    return {"success": True}
