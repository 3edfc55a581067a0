"""Listing and steering conversations."""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, StringConstraints

from agent_core.errors import DrydockError
from server.conversation_manager.conversation_manager import ConversationStatus, conversation_info
from server.db.errors import DatabaseError
from server.dependencies import (
    ConversationId,
    IdentityDependency,
    ServicesDependency,
    conversation_not_found,
    find_conversation,
)
from server.errors import ConversationNotFoundError, ReplyError, status_of
from server.routes.conversation_pages import PageLimit, Trigger, conversation_page
from server.routes.json_route import JsonRoute
from server.routes.query import PageId, Repository
from server.routes.replies.conversations import ConversationInfo, ConversationList, ConversationReply
from server.routes.replies.errors import errors
from server.session.user_settings import masker_of
from server.settings.git_hosts import Provider

logger = logging.getLogger(__name__)
router = APIRouter(prefix="/api/conversations", route_class=JsonRoute)

Title = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]


class TitleChange(BaseModel):
    """The body of a rename."""

    model_config = ConfigDict(extra="forbid")

    title: Title


class StartOptions(BaseModel):
    """The body of a start."""

    providers_set: list[Provider] | None = None


@router.get("", response_model=ConversationList, responses=errors(400))
async def list_conversations(
    services: ServicesDependency,
    identity: IdentityDependency,
    limit: PageLimit = 20,
    page_id: PageId = None,
    selected_repository: Repository = None,
    conversation_trigger: Trigger | None = None,
    include_sub_conversations: bool = False,
) -> dict[str, Any]:
    """A page of conversations, newest first."""
    page = await conversation_page(
        services,
        identity,
        limit=limit,
        page_id=page_id,
        selected_repository=selected_repository,
        trigger=conversation_trigger,
    )
    results = [conversation_info(record, services.manager.live(record.id)) for record in page.results]
    return {"results": results, "next_page_id": page.next_page_id}


@router.get("/{conversation_id}", response_model=ConversationInfo | None)
async def get_conversation(
    conversation_id: ConversationId, services: ServicesDependency, identity: IdentityDependency
) -> dict[str, Any] | None:
    """One conversation; null when there is none of this id."""
    record = await find_conversation(services, identity, conversation_id)
    return None if record is None else conversation_info(record, services.manager.live(record.id))


@router.patch("/{conversation_id}", responses=errors(403, 404))
async def rename_conversation(
    conversation_id: ConversationId, body: TitleChange, services: ServicesDependency, identity: IdentityDependency
) -> bool:
    """Give it a title."""
    conversations = services.database.conversations
    try:
        record = await conversations.get(conversation_id)
        if record is not None and record.user_id != identity.user_id:
            text = "Permission denied: you can only rename your own conversations"
            raise _refused(403, text, "AUTHORIZATION$PERMISSION_DENIED")
        title = (await masker_of(services.database, identity.user_id)).text(body.title)
        if record is None or not await conversations.rename(conversation_id, title):
            raise _refused(404, "Conversation not found", "CONVERSATION$NOT_FOUND")
    except DatabaseError as error:
        logger.warning("conversation %s could not be renamed: %s", conversation_id, error)
        raise _refused(500, f"Failed to rename conversation: {error}", "CONVERSATION$UPDATE_ERROR") from error
    await services.manager.announce_title(conversation_id, title)
    return True


@router.delete("/{conversation_id}")
async def delete_conversation(
    conversation_id: ConversationId, services: ServicesDependency, identity: IdentityDependency
) -> bool:
    """Stop it and delete everything of it; false when there is none of this id."""
    if await find_conversation(services, identity, conversation_id) is None:
        return False
    # Whoever asked may hang up: what was begun is done whole.
    return await asyncio.shield(asyncio.ensure_future(services.manager.delete(conversation_id)))


@router.post("/{conversation_id}/start", response_model=ConversationReply, responses=errors(404))
async def start_conversation(
    conversation_id: ConversationId,
    services: ServicesDependency,
    identity: IdentityDependency,
    body: StartOptions | None = None,
) -> dict[str, Any]:
    """See to it that it runs."""
    if await find_conversation(services, identity, conversation_id) is None:
        raise conversation_not_found(conversation_id)
    try:
        live = await services.manager.maybe_start_agent_loop(conversation_id)
    except ConversationNotFoundError as error:  # deleted in this moment
        raise conversation_not_found(conversation_id) from error
    except DrydockError as error:
        raise _failed("start", conversation_id, error) from error
    return {
        "status": "ok",
        "conversation_id": conversation_id,
        "message": None,
        "conversation_status": live.status.value,
    }


@router.post("/{conversation_id}/stop", response_model=ConversationReply, responses=errors(404))
async def stop_conversation(
    conversation_id: ConversationId, services: ServicesDependency, identity: IdentityDependency
) -> dict[str, Any]:
    """End its session; ``conversation_status`` is what it was before."""
    if await find_conversation(services, identity, conversation_id) is None:
        raise conversation_not_found(conversation_id)
    try:
        before = await asyncio.shield(asyncio.ensure_future(services.manager.stop(conversation_id)))
    except DrydockError as error:
        raise _failed("stop", conversation_id, error) from error
    was_running = before.status is not ConversationStatus.STOPPED
    return {
        "status": "ok",
        "conversation_id": conversation_id,
        "message": "Conversation stopped successfully" if was_running else "Conversation was not running",
        "conversation_status": before.status.value,
    }


def _refused(status: int, message: str, msg_id: str) -> ReplyError:
    return ReplyError(status, {"status": "error", "message": message, "msg_id": msg_id})


def _failed(what: str, conversation_id: str, error: DrydockError) -> ReplyError:
    logger.warning("conversation %s could not %s: %s", conversation_id, what, error)
    message = f"Failed to {what} conversation: {error}"
    body = {"status": "error", "conversation_id": conversation_id, "message": message}
    return ReplyError(status_of(error), body)
