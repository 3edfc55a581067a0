"""Dependencies of the routes: the services of the running server, and who asks."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Header, Path, Request
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from agent_core.troubles import USER
from server.auth.identity import IDENTITY, Authenticator, Identity
from server.auth.shared_links import NOTHING_ELSE
from server.conversation_manager.conversation_manager import ConversationManager
from server.db.database import Database
from server.db.repositories.conversations import MAX_ID_LENGTH, ConversationRecord, id_problem
from server.db.repositories.idempotency_keys import MAX_KEY_CHARS
from server.db.repositories.shares import Access
from server.doors.chat.turn import ChatClaims
from server.doors.preview.access import PreviewLinks
from server.doors.webhooks.dispatcher import Webhooks
from server.errors import ConversationNotFoundError, ReadOnlyError, ReplyError
from server.git_providers.accounts import GitAccess
from server.metrics import ServerMetrics
from server.session.agents.mcp_sign_ins import McpSignIns
from server.session.agents.plugins import Plugins
from server.session.agents.web_search import SearchService
from server.session.sandboxes import Sandboxes
from server.session.warm_sandboxes import WarmSandboxes
from server.settings.settings import Settings

if TYPE_CHECKING:  # loaded where users have accounts
    from server.accounts import Accounts
    from server.single_sign_on import ProviderSignIn


@dataclass(frozen=True, slots=True)
class Services:
    """The parts of a running server. `ending`: long answers are to break off, in words."""

    settings: Settings
    authenticator: Authenticator
    database: Database
    sandboxes: Sandboxes
    warm: WarmSandboxes
    manager: ConversationManager
    previews: PreviewLinks
    git: GitAccess
    provider_door: ASGIApp
    webhooks: Webhooks
    mcp_sign_ins: McpSignIns
    search: SearchService
    plugins: Plugins
    metrics: ServerMetrics
    accounts: Accounts | None = None
    """Of users with accounts; None where there is one user."""
    provider_sign_in: ProviderSignIn | None = None
    """By an OpenID provider; None where there is none."""
    chats: ChatClaims = field(default_factory=ChatClaims)
    live_logs: Counter[str] = field(default_factory=Counter)
    """How many logs each user follows."""
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    started_at: float = field(default_factory=time.monotonic)

    def uptime_seconds(self) -> float:
        return time.monotonic() - self.started_at


def services_of(request: Request) -> Services:
    """The services of the server that got this request."""
    services: Services = request.app.state.services
    return services


def visitor_of(request: Request) -> Identity:
    """Who asks, as the gate has found, perhaps a guest; 401 for nobody whom the server knows."""
    identity: Identity | None = request.scope.get(IDENTITY)
    if identity is None:
        raise HTTPException(401, "Unauthorized")
    USER.set(identity.user_id)
    return identity


def identity_of(request: Request) -> Identity:
    """The user who asks; 401 for nobody whom the server knows, 403 for a guest."""
    identity = visitor_of(request)
    if identity.is_guest:
        raise HTTPException(403, NOTHING_ELSE)
    return identity


def checked_conversation_id(conversation_id: str) -> str:
    """The id; 400 if it can be none."""
    problem = id_problem(conversation_id)
    if problem is not None:
        raise HTTPException(400, problem)
    return conversation_id


# The dependencies below do not depend on one another, but call what they need: FastAPI takes the signature of each
# apart anew for each route that has it, which was a tenth of the server's start. They are asynchronous, because others
# run in threads.

_PathId = Annotated[str, Path(json_schema_extra={"minLength": 1, "maxLength": MAX_ID_LENGTH})]


async def _services(request: Request) -> Services:
    return services_of(request)


async def _identity(request: Request) -> Identity:
    return identity_of(request)


async def _visitor(request: Request) -> Identity:
    return visitor_of(request)


async def conversation_id_of_path(conversation_id: _PathId) -> str:
    """See `checked_conversation_id`."""
    return checked_conversation_id(conversation_id)


ServicesDependency = Annotated[Services, Depends(_services)]
IdentityDependency = Annotated[Identity, Depends(_identity)]
VisitorDependency = Annotated[Identity, Depends(_visitor)]
"""Like `IdentityDependency`; perhaps a guest, who has nothing but `links` to conversations."""
ConversationId = Annotated[str, Depends(conversation_id_of_path)]


async def find_conversation(
    services: Services, identity: Identity, conversation_id: str, *, even_damaged: bool = False
) -> ConversationRecord | None:
    """The conversation, if there is one of this id and it is this user's."""
    record = await services.database.conversations.get(conversation_id, even_damaged=even_damaged)
    return record if record is not None and record.user_id == identity.user_id else None


async def own_conversation(request: Request, conversation_id: _PathId) -> ConversationRecord:
    """The record of the conversation in the path, if it is this user's."""
    conversation_id = checked_conversation_id(conversation_id)
    record = await find_conversation(services_of(request), identity_of(request), conversation_id)
    if record is None:
        raise ConversationNotFoundError(conversation_id)
    return record


async def find_shared(
    services: Services, visitor: Identity, conversation_id: str
) -> tuple[ConversationRecord, Access] | None:
    """The conversation, and what the visitor may do with it, if there is one of this id and it is theirs or shared."""
    record = await services.database.conversations.get(conversation_id)
    if record is None:
        return None
    access = await services.database.shares.access(record.id, record.user_id, visitor)
    return None if access is None else (record, access)


async def shared_conversation(request: Request, conversation_id: _PathId) -> ConversationRecord:
    """The record of the conversation in the path, if it is theirs or shared with them; to be changed, for writing."""
    conversation_id = checked_conversation_id(conversation_id)
    found = await find_shared(services_of(request), visitor_of(request), conversation_id)
    if found is None:
        raise ConversationNotFoundError(conversation_id)
    record, access = found
    if access is Access.READ and request.method not in {"GET", "HEAD"}:
        raise ReadOnlyError
    return record


IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=MAX_KEY_CHARS,
        pattern=r"^[!-~]+$",
        description="Repeated with the same body within a week, it is answered as the first time, and nothing is done.",
    ),
]
"""The client's name for this request; an addition (see `server.db.repositories.idempotency_keys`)."""

OwnConversation = Annotated[ConversationRecord, Depends(own_conversation)]
"""The record of the conversation in the path; 404 ``{"detail": …}`` when there is none."""


SharedConversation = Annotated[ConversationRecord, Depends(shared_conversation)]
"""Like `OwnConversation`, also for those with whom it is shared: for reading, or, for what changes it, for writing."""


def conversation_not_found(conversation_id: str) -> ReplyError:
    """The shape of 404 that start and stop have; with words, which its client shows."""
    return ReplyError(
        404,
        {
            "status": "error",
            "conversation_id": conversation_id,
            "message": "Conversation not found",
            "msg_id": "CONVERSATION$NOT_FOUND",
        },
    )
