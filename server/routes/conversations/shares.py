"""Sharing a conversation, with whoever has a link, for reading or writing, until it is taken back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, Literal

from fastapi import Path, Request, Response
from pydantic import BaseModel, Field

from agent_core.events.event import utc_now
from server.auth.identity import presented_token
from server.auth.shared_links import LINK_PREFIX, link_cookie
from server.conversation_manager.conversation_manager import conversation_info
from server.db.repositories.shares import Access, Share, TooManySharesError
from server.dependencies import IdentityDependency, OwnConversation, Services, ServicesDependency, VisitorDependency
from server.errors import ConversationNotFoundError, ReplyError
from server.routes.conversations.conversations import ConversationInfo
from server.routes.replies import errors, status_error
from server.routes.route_classes import make_router
from server.wire.envelope import wire_time

router = make_router("/api")

WEEK: Final = 7 * 24 * 3600
MAX_SECONDS: Final = 366 * 24 * 3600
MAX_LISTED: Final = 100


class ShareWish(BaseModel, extra="forbid"):
    """The body of a new share."""

    access: Literal["read", "write"] = Field("read", description="`write`: also say something, and start and stop it.")
    user: str | None = Field(
        None, min_length=1, max_length=320, description="Name or address of a user to share it with; null: make a link."
    )
    expires_in: int | None = Field(
        WEEK, ge=60, le=MAX_SECONDS, description="Seconds until it ends by itself; null: never. A week by default."
    )


class ShareEntry(BaseModel):
    """A share of a conversation."""

    share_id: str
    user: str | None = Field(description="With whom; null: with whoever has the link.")
    access: Literal["read", "write"]
    created_at: str = Field(description="UTC, ISO 8601 with microseconds and `Z`.")
    expires_at: str | None = Field(description="The same; null: it does not end by itself.")
    has_ended: bool


class NewShare(BaseModel):
    """A share, and what is told once."""

    share_id: str
    access: Literal["read", "write"]
    expires_at: str | None = Field(description="UTC, ISO 8601 with microseconds and `Z`; null: never.")
    token: str | None = Field(
        description="What a link opens the conversation with, as the key of a program; nobody can ask for it again."
    )
    path: str = Field(description="Where a browser finds it, on this server; the token of a link is in its fragment.")


class ShareList(BaseModel):
    """The shares of a conversation, oldest first."""

    results: list[ShareEntry]


class SharedConversations(BaseModel):
    """Conversations of others."""

    results: list[ConversationInfo]


class OpenedShare(BaseModel):
    """What a link leads to."""

    conversation_id: str
    access: Literal["read", "write"]


@router.post("/conversations/{conversation_id}/shares", status_code=201, responses=errors(409))
async def share_conversation(
    record: OwnConversation, services: ServicesDependency, request: Request, body: ShareWish | None = None
) -> NewShare:
    """Share this conversation with a user, or make a link that opens it to whoever has it."""
    body = body or ShareWish()
    now = utc_now()
    share = Share(
        conversation_id=record.id,
        user_id=None if body.user is None else await _user_of(services, body.user, record.user_id),
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
    place = f"/shared#{token}" if token else f"/conversations/{record.id}"
    ends = None if share.expires_at is None else wire_time(share.expires_at)
    path = f"{services.settings.base_path}{place}"
    return NewShare(share_id=share.id, access=body.access, expires_at=ends, token=token or None, path=path)


async def _user_of(services: Services, name: str, owner: str) -> str:
    if services.accounts is None:
        raise status_error(422, "user: this server has one user; leave it out, and a link is made")
    user = await services.database.users.named(name)
    if user is None or user.disabled:
        raise status_error(404, f"user: there is no user {name[:100]!r} whom this could be shared with")
    if user.id == owner:
        raise status_error(422, "user: this conversation is this user's own")
    return user.id


@router.get("/conversations/{conversation_id}/shares", response_model=ShareList)
async def list_shares(record: OwnConversation, services: ServicesDependency) -> dict[str, Any]:
    """The shares of a conversation, also those that ended within the last month."""
    now, found = utc_now(), await services.database.shares.all(record.id)
    with_users = any(one.user_id is not None for one in found)
    names = {user.id: user.name for user in await services.database.users.all()} if with_users else {}
    return {"results": [_entry(one, now, names) for one in found]}


@router.delete("/conversations/{conversation_id}/shares/{share_id}")
async def take_share_back(
    record: OwnConversation, services: ServicesDependency, share_id: Annotated[str, Path(max_length=100)]
) -> bool:
    """End it at once; who follows the conversation by it is let go within seconds. False when there is none."""
    if not share_id.isalnum():
        raise status_error(400, "share_id: this is the id of no share; `GET …/shares` has those that there are")
    return await services.database.shares.remove(record.id, share_id)


@router.get("/shared", response_model=SharedConversations)
async def list_shared(identity: IdentityDependency, services: ServicesDependency) -> dict[str, Any]:
    """The conversations that others share with this user, the newest shares first."""
    results = []
    for share in await services.database.shares.with_user(identity.user_id, limit=MAX_LISTED):
        record = await services.database.conversations.get(share.conversation_id)
        if record is not None:
            live = services.manager.live(record.id)
            results.append(conversation_info(record, live, services.settings.base_path, share.access))
    return {"results": results}


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


def _entry(share: Share, now: datetime, names: Mapping[str, str]) -> dict[str, Any]:
    return {
        "share_id": share.id,
        "user": None if share.user_id is None else names.get(share.user_id, ""),
        "access": share.access.value,
        "created_at": wire_time(share.created_at),
        "expires_at": None if share.expires_at is None else wire_time(share.expires_at),
        "has_ended": share.has_ended(now),
    }
