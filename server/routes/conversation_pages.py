"""A page of a user's conversations, for every route that lists them."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Final, Literal

from fastapi import Query

from agent_core.events.event import utc_now
from server.auth.identity import Identity
from server.db.conversations import ConversationListPage
from server.db.errors import InvalidPageError
from server.dependencies import Services
from server.errors import ReplyError

MAX_PAGE: Final = 1000
"""As many as the protocol's client asks for at once where it shows what makes a repository's microagents."""

PageLimit = Annotated[int, Query(ge=1, le=MAX_PAGE)]

Trigger = Literal[
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


async def conversation_page(
    services: Services,
    identity: Identity,
    *,
    limit: int,
    page_id: str | None,
    selected_repository: str | None,
    trigger: Trigger | None,
) -> ConversationListPage:
    """At most `limit` of them, newest first, none older than the server's setting.

    Raises:
        ReplyError: 400, `page_id` is none that a page before has handed out.
        DatabaseError: they cannot be read.
    """
    age = services.settings.conversation_max_age_seconds
    try:
        return await services.database.conversations.list_page(
            limit=limit,
            page_id=page_id,
            user_id=identity.user_id,
            selected_repository=selected_repository,
            trigger=trigger,
            created_after=utc_now() - timedelta(seconds=age) if age else None,
        )
    except InvalidPageError as error:
        raise ReplyError(400, {"detail": str(error)}) from error
