"""Feedback of users on conversations. It is kept here and sent nowhere."""

from __future__ import annotations

import logging
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import BaseModel, Field

from server.db.errors import DatabaseError, InvalidPageError
from server.db.repositories.feedback import Feedback
from server.dependencies import IdentityDependency, OwnConversation, ServicesDependency
from server.errors import ReplyError, log_level, status_of, stored_problem
from server.routes.query import PageId
from server.routes.replies import errors
from server.routes.route_classes import make_router
from server.wire.envelope import wire_time

logger = logging.getLogger(__name__)
router = make_router("/api")

THANKS = "Thank you. Your feedback is kept on this server, with the conversation."


class GivenFeedback(BaseModel):
    """The body. Other fields of the original's client, such as an empty ``trajectory``, are passed over."""

    version: Annotated[str, Field(max_length=100)] = "1.0"
    email: Annotated[str, Field(max_length=500)] = ""
    polarity: Literal["positive", "negative"]
    permissions: Literal["public", "private"] = "private"


class Receipt(BaseModel):
    """Under which id it is kept. The original's collector gives a password for taking it back; here there is none."""

    message: str
    feedback_id: str
    password: str


class FeedbackReply(BaseModel):
    """It is kept."""

    statusCode: Literal[200] = 200  # noqa: N815 - the protocol's name
    body: Receipt


class FeedbackEntry(BaseModel):
    """What was said of a conversation."""

    feedback_id: str
    conversation_id: str
    last_event_id: int = Field(description="The last event that was there; -1: none.")
    created_at: str = Field(description="UTC, ISO 8601 with microseconds and `Z`.")
    polarity: Literal["positive", "negative"]
    permissions: Literal["public", "private"]
    email: str
    version: str


class FeedbackList(BaseModel):
    """A page of it, newest first."""

    results: list[FeedbackEntry]
    next_page_id: str | None = Field(description="`page_id` of the next page; null on the last one.")


@router.post("/conversations/{conversation_id}/submit-feedback")
async def submit_feedback(record: OwnConversation, services: ServicesDependency, body: GivenFeedback) -> FeedbackReply:
    """Keep what a user says of a conversation as it is now."""
    try:
        last = await services.database.events.last_id(record.id)
        feedback = Feedback(user_id=record.user_id, conversation_id=record.id, last_event_id=last, **body.model_dump())
        await services.database.feedback.add(feedback)
    except DatabaseError as error:
        logger.log(log_level(error, logging.ERROR), "feedback on conversation %s was not stored: %s", record.id, error)
        raise ReplyError(status_of(error), {"error": stored_problem(error, "Failed to submit feedback")}) from error
    return FeedbackReply(body=Receipt(message=THANKS, feedback_id=feedback.id, password=""))


@router.get("/feedback", response_model=FeedbackList, responses=errors(400))
async def list_feedback(
    services: ServicesDependency,
    identity: IdentityDependency,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    page_id: PageId = None,
    conversation_id: Annotated[str | None, Query(max_length=100)] = None,
) -> dict[str, Any]:
    """A page of what was said, newest first, of all conversations or of one; an addition to the protocol."""
    try:
        page = await services.database.feedback.list_page(
            limit=limit, page_id=page_id, user_id=identity.user_id, conversation_id=conversation_id
        )
    except InvalidPageError as error:
        raise ReplyError(400, {"detail": str(error)}) from error
    return {"results": [_public(one) for one in page.results], "next_page_id": page.next_page_id}


def _public(one: Feedback) -> dict[str, Any]:
    return {
        "feedback_id": one.id,
        "conversation_id": one.conversation_id,
        "last_event_id": one.last_event_id,
        "created_at": wire_time(one.created_at),
        "polarity": one.polarity,
        "permissions": one.permissions,
        "email": one.email,
        "version": one.version,
    }
