"""The conversations in which a repository's microagents are made."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, cast

from fastapi import APIRouter, Query

from server.conversation_manager.conversation_manager import conversation_info
from server.db.conversations import ConversationRecord
from server.dependencies import IdentityDependency, ServicesDependency
from server.git_providers.accounts import GitAccounts
from server.routes.conversation_pages import PageLimit, conversation_page
from server.routes.json_route import JsonRoute
from server.routes.query import PageId
from server.routes.replies.conversations import ConversationList
from server.routes.replies.errors import errors
from server.settings.git_hosts import Provider

router = APIRouter(prefix="/api/microagent-management", route_class=JsonRoute)


@router.get("/conversations", response_model=ConversationList, responses=errors(400))
async def list_microagent_conversations(
    selected_repository: Annotated[str, Query(max_length=500)],
    services: ServicesDependency,
    identity: IdentityDependency,
    limit: PageLimit = 20,
    page_id: PageId = None,
) -> dict[str, Any]:
    """A page of them, newest first, without those whose requests were merged or closed; so a page may be short."""
    page = await conversation_page(
        services,
        identity,
        limit=limit,
        page_id=page_id,
        selected_repository=selected_repository,
        trigger="microagent_management",
    )
    accounts = services.git.accounts(await services.database.settings.get(identity.user_id))
    are_open = await asyncio.gather(*(_is_open(accounts, record) for record in page.results))
    shown = [record for record, is_open in zip(page.results, are_open, strict=True) if is_open]
    results = [conversation_info(record, services.manager.live(record.id)) for record in shown]
    return {"results": results, "next_page_id": page.next_page_id}


async def _is_open(accounts: GitAccounts, record: ConversationRecord) -> bool:
    if not record.pr_number or not record.selected_repository:
        return True
    provider = cast(Provider | None, record.git_provider)
    return await accounts.is_request_open(provider, record.selected_repository, record.pr_number[-1])
