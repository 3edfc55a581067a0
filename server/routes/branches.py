"""Going back in a conversation, and branching off: additions to the protocol, which its own client does not use."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from agent_core.errors import DrydockError, NoSuchEventError
from agent_core.events.branches import Rewind
from server.conversation_manager.conversation_manager import ConversationStatus
from server.conversation_manager.forks import fork_conversation
from server.db.conversations import ConversationRecord
from server.db.idempotency_keys import Attempt
from server.dependencies import IdempotencyKey, OwnConversation, Services, ServicesDependency
from server.errors import ConversationNotFoundError, ReplyError
from server.routes.json_route import JsonRoute
from server.routes.making import made_once
from server.routes.replies.conversations import ForkReply, RewindReply

router = APIRouter(prefix="/api/conversations/{conversation_id}", route_class=JsonRoute)


class RewindWish(BaseModel):
    """The body of ``POST …/rewind``; ``event_id`` null goes before the first event."""

    model_config = ConfigDict(extra="forbid", strict=True)

    event_id: int | None = Field(ge=0, strict=True)


class ForkWish(BaseModel):
    """The body of ``POST …/fork``; without ``event_id`` the fork has the whole log."""

    model_config = ConfigDict(extra="forbid", strict=True)

    event_id: int | None = Field(None, ge=0, strict=True)
    reset_metrics: bool = True
    copy_files: bool = True


@router.post("/rewind", response_model=RewindReply, response_model_exclude_unset=True)
async def rewind_conversation(
    record: OwnConversation, services: ServicesDependency, body: RewindWish
) -> dict[str, Any]:
    """Take the conversation back to right behind an event; ``id`` is that of the rewind in the log."""
    try:
        rewind = await services.manager.rewind(record.id, body.event_id)
    except NoSuchEventError as error:
        raise ReplyError(400, _error(f"event_id: {error}")) from error
    except ConversationNotFoundError:
        raise
    except DrydockError as error:
        raise ReplyError(500, _error(f"The conversation could not be taken back: {error}")) from error
    facts = {"files_of": rewind.files_of, "note": rewind.note} if isinstance(rewind, Rewind) else {}
    return {"status": "ok", "conversation_id": record.id, "id": rewind.id, "event_id": body.event_id, **facts}


@router.post("/fork", response_model=ForkReply)
async def fork(
    record: OwnConversation, services: ServicesDependency, key: IdempotencyKey = None, body: ForkWish | None = None
) -> dict[str, Any]:
    """Make a new conversation that begins as this one did up to an event; this one is left as it is."""
    wish = body or ForkWish()

    async def make(attempt: Attempt) -> str:
        # A fork is there as a whole, or not at all.
        if not attempt.is_repeated or await services.database.conversations.get(attempt.resource) is None:
            await _fork(services, record, wish, attempt.resource)
        return attempt.resource

    return await made_once(
        services,
        key,
        make,
        user_id=record.user_id,
        scope=f"fork:{record.id}",
        asked=wish.model_dump(mode="json", exclude_unset=True),
        status=ConversationStatus.STOPPED,
        forked_from=record.id,
    )


async def _fork(services: Services, record: ConversationRecord, wish: ForkWish, new_id: str) -> None:
    try:
        await fork_conversation(
            services.database,
            services.manager,
            record,
            new_id,
            upto=wish.event_id,
            reset_metrics=wish.reset_metrics,
            copy_files=wish.copy_files,
        )
    except NoSuchEventError as error:
        raise ReplyError(400, _error(f"event_id: {error}")) from error
    except ConversationNotFoundError:
        raise
    except DrydockError as error:
        raise ReplyError(500, _error(f"The conversation could not be forked: {error}")) from error


def _error(message: str) -> dict[str, str]:
    return {"status": "error", "message": message, "detail": message}
