"""Conversations: listed, renamed, deleted, started, stopped, taken back and forked."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Annotated, Any, Final, Literal

from fastapi import Query
from pydantic import BaseModel, Field, StringConstraints

from agent_core.errors import DrydockError, NoSuchEventError
from agent_core.events.branches import Rewind
from agent_core.events.event import utc_now
from server.auth.identity import Identity
from server.conversation_manager.conversation_manager import ConversationStatus, conversation_info
from server.conversation_manager.forks import fork_conversation
from server.db.errors import DatabaseError, InvalidPageError
from server.db.page_ids import NewestFirst
from server.db.repositories.conversations import ConversationRecord
from server.db.repositories.idempotency_keys import Attempt
from server.db.repositories.shares import Access
from server.dependencies import (
    ConversationId,
    IdempotencyKey,
    IdentityDependency,
    OwnConversation,
    Services,
    ServicesDependency,
    VisitorDependency,
    conversation_not_found,
    find_conversation,
    find_shared,
)
from server.errors import ConversationNotFoundError, ReadOnlyError, ReplyError, log_level, status_of
from server.routes.conversations.new_conversation import (
    MAX_TITLE_CHARS,
    ConversationReply,
    check_program,
    create_once,
    is_unguessable,
)
from server.routes.query import ConversationQuery, PageId, RepositoryQuery
from server.routes.replies import errors, status_error
from server.routes.route_classes import make_router
from server.routes.user.llm_profiles import check_choice
from server.session.agents.programs import ProgramSettings
from server.session.user_settings import masker_of
from server.settings.git_hosts import Provider
from server.settings.llm_profiles import ProfileName

logger = logging.getLogger(__name__)
router = make_router("/api/conversations")

MAX_PAGE: Final = 1000
"""As many as the protocol's client asks for at once where it shows what makes a repository's microagents."""

PageLimit = Annotated[int, Query(ge=1, le=MAX_PAGE)]

ConversationTrigger = Literal[
    "resolver",
    "gui",
    "suggested_task",
    "openhands_api",
    "slack",
    "microagent_management",
    "jira",
    "jira_dc",
    "linear",
    "bitbucket",
]
"""What a conversation may come from."""


Title = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_TITLE_CHARS)]


class Waiting(BaseModel):
    """The place of a conversation that waits for its turn to work."""

    position: int = Field(ge=1, description="1: it is next.")
    message: str = Field(description="The same for people, with what it waits for.")


class ConversationInfo(BaseModel):
    """What is known of a conversation, the same in lists and alone."""

    conversation_id: str
    title: str
    last_updated_at: str | None = Field(description="UTC, ISO 8601 with microseconds and `Z`.")
    status: ConversationStatus
    runtime_status: str | None = Field(description="An id such as `STATUS$READY`.")
    runtime_warning: str | None = Field(
        description="What is wrong with its sandbox: the network, or why it is frozen, held back or not there."
    )
    waiting: Waiting | None = Field(description="Its place in the queue while it waits for its turn.")
    selected_repository: str | None
    selected_branch: str | None
    git_provider: str | None
    trigger: str | None = Field(description="What it comes from: `gui`, `suggested_task`, …")
    num_connections: int = Field(ge=0)
    url: str | None = Field(description="The base of its routes while it has a session.")
    session_api_key: str | None
    created_at: str = Field(description="UTC, ISO 8601 with microseconds and `Z`.")
    pr_number: list[int]
    conversation_version: Literal["V0"]
    sub_conversation_ids: list[str]
    agent_state: str | None = Field(description="What its agent was last seen doing; null before its first start.")
    accumulated_cost: float = Field(ge=0, description="What its models have cost, in US dollars.")
    access: Access = Field(description="What who asks may do with it.")


class ConversationList(BaseModel):
    """A page of conversations, newest first."""

    results: list[ConversationInfo]
    next_page_id: str | None = Field(description="`page_id` of the next page; null on the last one.")


class TitleChange(BaseModel, extra="forbid"):
    """The body of a rename."""

    title: Title


class StartOptions(BaseModel):
    """The body of a start."""

    providers_set: list[Provider] | None = Field(
        None, description="The client's own, and only checked: agents have every token that is stored."
    )


@router.get("", response_model=ConversationList, responses=errors(400))
async def list_conversations(
    services: ServicesDependency,
    identity: IdentityDependency,
    limit: PageLimit = 20,
    page_id: PageId = None,
    selected_repository: RepositoryQuery = None,
    conversation_trigger: ConversationTrigger | None = None,
    query: ConversationQuery = None,
    include_sub_conversations: Annotated[
        bool, Query(description="Without effect: sub-agents have logs of their own, but no conversations.")
    ] = False,
) -> dict[str, Any]:
    """A page of conversations, newest first."""
    page = await conversation_page(
        services, identity, limit, page_id, selected_repository, conversation_trigger, query=query
    )
    results = [
        conversation_info(record, services.manager.live(record.id), services.settings.base_path)
        for record in page.results
    ]
    return {"results": results, "next_page_id": page.next_page_id}


async def conversation_page(
    services: Services,
    identity: Identity,
    limit: int,
    page_id: str | None,
    selected_repository: str | None,
    trigger: ConversationTrigger | None,
    *,
    query: str | None = None,
) -> NewestFirst[ConversationRecord]:
    """At most `limit` conversations, newest first, none older than the server's setting."""
    age = services.settings.conversation_max_age_seconds
    try:
        return await services.database.conversations.list_page(
            limit=limit,
            page_id=page_id,
            user_id=identity.user_id,
            selected_repository=selected_repository,
            trigger=trigger,
            created_after=utc_now() - timedelta(seconds=age) if age else None,
            query=query,
        )
    except InvalidPageError as error:
        raise ReplyError(400, {"detail": str(error)}) from error


@router.get("/{conversation_id}", response_model=ConversationInfo | None)
async def get_conversation(
    conversation_id: ConversationId, services: ServicesDependency, visitor: VisitorDependency
) -> dict[str, Any] | None:
    """One conversation; null when there is none of this id."""
    found = await find_shared(services, visitor, conversation_id)
    if found is None:
        return None
    record, access = found
    return conversation_info(record, services.manager.live(record.id), services.settings.base_path, access)


@router.patch("/{conversation_id}", responses=errors(404))
async def rename_conversation(
    conversation_id: ConversationId, body: TitleChange, services: ServicesDependency, identity: IdentityDependency
) -> bool:
    """Give it a title."""
    conversations = services.database.conversations
    try:
        record = await find_conversation(services, identity, conversation_id)
        title = (await masker_of(services.database, identity.user_id)).text(body.title)
        if record is None or not await conversations.update(conversation_id, title=title):
            raise _refused(404, "Conversation not found", "CONVERSATION$NOT_FOUND")
    except DatabaseError as error:
        logger.log(log_level(error), "conversation %s could not be renamed: %s", conversation_id, error)
        raise _refused(
            status_of(error), f"Failed to rename conversation: {error}", "CONVERSATION$UPDATE_ERROR"
        ) from error
    await services.manager.announce_title(conversation_id, title)
    return True


@router.delete("/{conversation_id}")
async def delete_conversation(
    conversation_id: ConversationId, services: ServicesDependency, identity: IdentityDependency
) -> bool:
    """Stop it and delete everything of it, also where its record is damaged; false when there is none of this id."""
    if await find_conversation(services, identity, conversation_id, even_damaged=True) is None:
        return False
    # Whoever asked may hang up: what was begun is done whole.
    return await asyncio.shield(asyncio.ensure_future(services.manager.delete(conversation_id)))


async def _check_may_write(services: Services, visitor: Identity, conversation_id: str) -> None:
    found = await find_shared(services, visitor, conversation_id)
    if found is None:
        raise conversation_not_found(conversation_id)
    if found[1] is Access.READ:
        raise ReadOnlyError


@router.post("/{conversation_id}/start", responses=errors(404))
async def start_conversation(
    conversation_id: ConversationId,
    services: ServicesDependency,
    visitor: VisitorDependency,
    body: StartOptions | None = None,
) -> ConversationReply:
    """See to it that it runs."""
    await _check_may_write(services, visitor, conversation_id)
    try:
        live = await services.manager.maybe_start_agent_loop(conversation_id)
    except ConversationNotFoundError as error:  # deleted in this moment
        raise conversation_not_found(conversation_id) from error
    except DrydockError as error:
        raise _failed("start", conversation_id, error) from error
    return ConversationReply(
        status="ok", conversation_id=conversation_id, message=None, conversation_status=live.status
    )


@router.post("/{conversation_id}/stop", responses=errors(404))
async def stop_conversation(
    conversation_id: ConversationId, services: ServicesDependency, visitor: VisitorDependency
) -> ConversationReply:
    """End its session; ``conversation_status`` is what it was before."""
    await _check_may_write(services, visitor, conversation_id)
    try:
        before = await asyncio.shield(asyncio.ensure_future(services.manager.stop(conversation_id)))
    except DrydockError as error:
        raise _failed("stop", conversation_id, error) from error
    was_running = before.status is not ConversationStatus.STOPPED
    message = "Conversation stopped successfully" if was_running else "Conversation was not running"
    return ConversationReply(
        status="ok", conversation_id=conversation_id, message=message, conversation_status=before.status
    )


class RewindWish(BaseModel, extra="forbid", strict=True):
    """The body of ``POST …/rewind``; ``event_id`` null goes before the first event."""

    event_id: int | None = Field(ge=0, strict=True)


class ForkWish(BaseModel, extra="forbid", strict=True):
    """The body of ``POST …/fork``; without ``event_id`` the fork has the whole log, without a profile the same."""

    event_id: int | None = Field(None, ge=0, strict=True)
    reset_metrics: bool = True
    copy_files: bool = True
    conversation_id: str | None = Field(None, description="The fork's: a random UUID; by default the server says it.")
    program: ProgramSettings | None = Field(None, description="The fork's, where it is another one.")
    llm_profile: ProfileName | None = None


class ForkReply(ConversationReply):
    """The new conversation of a fork."""

    forked_from: str


class RewindReply(BaseModel):
    """Where a conversation goes on."""

    status: Literal["ok"]
    conversation_id: str
    id: int = Field(description="That of the rewind in the log.")
    event_id: int | None = Field(description="The last event that counts; null: none.")
    files_of: int | None = Field(None, description="As of which event the files are; null: left as they were.")
    note: str = Field("", description="Why the files are left as they are.")


@router.post("/{conversation_id}/rewind", response_model=RewindReply, response_model_exclude_unset=True)
async def rewind_conversation(
    record: OwnConversation, services: ServicesDependency, body: RewindWish
) -> dict[str, Any]:
    """Take the conversation back to right behind an event; ``id`` is that of the rewind in the log."""
    try:
        rewind = await services.manager.rewind(record.id, body.event_id)
    except DrydockError as error:
        raise _branch_error(error, "taken back") from error
    facts = {"files_of": rewind.files_of, "note": rewind.note} if isinstance(rewind, Rewind) else {}
    return {"status": "ok", "conversation_id": record.id, "id": rewind.id, "event_id": body.event_id, **facts}


@router.post("/{conversation_id}/fork", response_model=ForkReply)
async def fork(
    record: OwnConversation, services: ServicesDependency, key: IdempotencyKey = None, body: ForkWish | None = None
) -> dict[str, Any]:
    """Make a new conversation that begins as this one did up to an event; this one is left as it is."""
    body = body or ForkWish()
    await check_program(services, body.program)
    if body.conversation_id is not None and not is_unguessable(body.conversation_id):
        raise status_error(400, "conversation_id: must be a random UUID; leave it out, and the server says one")
    if body.llm_profile is not None:
        await check_choice(services, record.user_id, body.llm_profile)

    async def make(attempt: Attempt) -> str:
        # A fork is there as a whole, or not at all.
        new_id = body.conversation_id or attempt.resource
        if attempt.is_repeated and await services.database.conversations.get(new_id) is not None:
            return new_id
        if await services.database.conversations.get(new_id) is not None:
            raise status_error(409, f"conversation_id: there is a conversation {new_id!r} already; choose another id")
        try:
            await fork_conversation(
                services.database,
                services.manager,
                record,
                new_id,
                upto=body.event_id,
                reset_metrics=body.reset_metrics,
                copy_files=body.copy_files,
                program=body.program,
                llm_profile=body.llm_profile,
            )
        except DrydockError as error:
            if await services.database.conversations.get(record.id) is None:
                raise conversation_not_found(record.id) from error
            raise _branch_error(error, "forked") from error
        return new_id

    return await create_once(
        services,
        key,
        make,
        user_id=record.user_id,
        scope=f"fork:{record.id}",
        request=body.model_dump(mode="json", exclude_unset=True),
        status=ConversationStatus.STOPPED,
        forked_from=record.id,
    )


def _branch_error(error: DrydockError, what: str) -> DrydockError:
    if isinstance(error, ConversationNotFoundError):
        return error
    if isinstance(error, NoSuchEventError):
        return status_error(400, f"event_id: {error}")
    return status_error(status_of(error), f"The conversation could not be {what}: {error}")


def _refused(status: int, message: str, msg_id: str) -> ReplyError:
    return ReplyError(status, {"status": "error", "message": message, "msg_id": msg_id})


def _failed(what: str, conversation_id: str, error: DrydockError) -> ReplyError:
    logger.warning("conversation %s could not %s: %s", conversation_id, what, error)
    message = f"Failed to {what} conversation: {error}"
    body = {"status": "error", "conversation_id": conversation_id, "message": message}
    return ReplyError(status_of(error), body)
