"""Sharing a conversation, with whoever has a link, for reading or writing, until it is taken back."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Final, Literal

from fastapi import Path, Request, Response
from pydantic import BaseModel, Field

from agent_core.events.event import utc_now
from server.auth.identity import presented_token
from server.auth.shared_links import LINK_PREFIX, link_cookie
from server.db.repositories.shares import Access, Share, TooManySharesError
from server.dependencies import OwnConversation, ServicesDependency, VisitorDependency
from server.errors import ConversationNotFoundError, ReplyError
from server.routes.replies import errors, status_error
from server.routes.route_classes import make_router
from server.wire.envelope import wire_time

router = make_router("/api")

WEEK: Final = 7 * 24 * 3600
MAX_SECONDS: Final = 366 * 24 * 3600


class ShareWish(BaseModel, extra="forbid"):
    """The body of a new share."""

    access: Literal["read", "write"] = Field("read", description="`write`: also say something, and start and stop it.")
    expires_in: int | None = Field(
        WEEK, ge=60, le=MAX_SECONDS, description="Seconds until it ends by itself; null: never. A week by default."
    )


class ShareEntry(BaseModel):
    """A share of a conversation."""

    share_id: str
    access: Literal["read", "write"]
    created_at: str = Field(description="UTC, ISO 8601 with microseconds and `Z`.")
    expires_at: str | None = Field(description="The same; null: it does not end by itself.")
    has_ended: bool


class NewShare(BaseModel):
    """A share, and what is told once."""

    share_id: str
    access: Literal["read", "write"]
    expires_at: str | None = Field(description="UTC, ISO 8601 with microseconds and `Z`; null: never.")
    token: str = Field(description="What opens the conversation, as the key of a program; nobody can ask for it again.")
    path: str = Field(description="Where a browser finds it, on this server; the token is in its fragment.")


class ShareList(BaseModel):
    """The shares of a conversation, oldest first."""

    results: list[ShareEntry]


class OpenedShare(BaseModel):
    """What a link leads to."""

    conversation_id: str
    access: Literal["read", "write"]


@router.post("/conversations/{conversation_id}/shares", status_code=201, responses=errors(409))
async def share_conversation(
    record: OwnConversation, services: ServicesDependency, request: Request, body: ShareWish | None = None
) -> NewShare:
    """Make a link that opens this conversation to whoever has it."""
    body = body or ShareWish()
    now = utc_now()
    share = Share(
        conversation_id=record.id,
        access=Access(body.access),
        created_at=now,
        expires_at=None if body.expires_in is None else now + timedelta(seconds=body.expires_in),
    )
    try:
        token = await services.database.shares.add(share)
    except TooManySharesError as error:
        raise status_error(409, str(error)) from error
    if token is None:
        raise ConversationNotFoundError(record.id)
    path = f"{services.settings.base_path}/shared#{token}"
    ends = _entry(share, now)["expires_at"]
    return NewShare(share_id=share.id, access=body.access, expires_at=ends, token=token, path=path)


@router.get("/conversations/{conversation_id}/shares", response_model=ShareList)
async def list_shares(record: OwnConversation, services: ServicesDependency) -> dict[str, Any]:
    """The shares of a conversation, also those that ended within the last month."""
    now = utc_now()
    return {"results": [_entry(one, now) for one in await services.database.shares.all(record.id)]}


@router.delete("/conversations/{conversation_id}/shares/{share_id}")
async def take_share_back(
    record: OwnConversation, services: ServicesDependency, share_id: Annotated[str, Path(max_length=100)]
) -> bool:
    """End it at once; who follows the conversation by it is let go within seconds. False when there is none."""
    return await services.database.shares.remove(record.id, share_id)


@router.post("/shared", responses=errors(404))
async def open_share(
    visitor: VisitorDependency, services: ServicesDependency, request: Request, response: Response
) -> OpenedShare:
    """Let a browser in by the link whose token it shows as a key: from then on it has a cookie."""
    token = presented_token(request.headers) or ""
    found = await services.database.shares.links([token]) if token.startswith(LINK_PREFIX) else []
    if not found:
        raise ReplyError(404, {"detail": "Show a link's token as the key of this request; this one shows none."})
    (share,) = found
    seconds = MAX_SECONDS if share.expires_at is None else int((share.expires_at - utc_now()).total_seconds())
    response.headers["set-cookie"] = link_cookie(
        token, seconds=seconds, path=services.settings.base_path or "/", is_safe=request.url.scheme == "https"
    )
    return OpenedShare(conversation_id=share.conversation_id, access=share.access.value)


def _entry(share: Share, now: datetime) -> dict[str, Any]:
    return {
        "share_id": share.id,
        "access": share.access.value,
        "created_at": wire_time(share.created_at),
        "expires_at": None if share.expires_at is None else wire_time(share.expires_at),
        "has_ended": share.has_ended(now),
    }
