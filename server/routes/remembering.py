"""A proposal of how to ask an agent to remember something."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel

from agent_core.errors import DrydockError, LLMBadRequestError
from agent_core.events.serialization import from_payload
from server.dependencies import OwnConversation, ServicesDependency
from server.errors import ReplyError
from server.routes.json_route import JsonRoute
from server.routes.replies.errors import errors
from server.session.memory_request import AROUND, remember_prompt

router = APIRouter(prefix="/api/conversations/{conversation_id}", route_class=JsonRoute)


class RememberPrompt(BaseModel):
    """The proposal."""

    status: Literal["success"] = "success"
    prompt: str


@router.get("/remember-prompt", responses=errors(400))
async def propose_remembering(
    record: OwnConversation, services: ServicesDependency, event_id: Annotated[int, Query(ge=0, le=2**53)]
) -> RememberPrompt:
    """What to ask for, so that an agent notes in the repository what this event shows; the conversation pays for it."""
    store = services.database.events
    if event_id > await store.last_id(record.id):
        text = f"event_id: the conversation has no event {event_id}; give the id of one"
        raise ReplyError(400, {"status": "error", "message": text, "detail": text})
    model = services.manager.side_model(record.id)
    if model is None:  # it could pay only when it runs, and nobody has asked for that
        text = "the conversation does not run; start it first"
        raise ReplyError(404, {"status": "error", "message": text, "detail": text})
    stored = await store.read(record.id, after=event_id - AROUND - 1, limit=2 * AROUND + 1)
    try:
        events = [from_payload(one.payload, one.id) for one in stored]
        return RememberPrompt(prompt=await remember_prompt(events, event_id, *model))
    except DrydockError as error:
        text = f"Failed to propose what to remember: {error}"
        # A model that takes no request at all as it is set up is not the server's fault.
        status = 400 if isinstance(error, LLMBadRequestError) else 500
        raise ReplyError(status, {"status": "error", "message": text, "detail": text}) from error
