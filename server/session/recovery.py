"""Recovery: takes up what the process before left, agents that were at work and their sandboxes."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

from agent_core.errors import DrydockError
from agent_core.runtime.sandbox import SandboxStatus
from server.db.repositories.conversations import ConversationRecord, ConversationRepository
from server.session.crash_guard import CrashGuard
from server.session.recorder import BUSY_STATES
from server.session.sandboxes import Sandboxes

logger = logging.getLogger(__name__)

PAGE = 100


async def resume_interrupted(
    conversations: ConversationRepository,
    start: Callable[[str], Awaitable[object]],
    guard: CrashGuard,
    *,
    concurrency: int,
    limit: int,
) -> None:
    """Start conversations whose agent was at work, `concurrency` at a time: each user's `limit` most recent ones.

    What the `guard` holds back is left out, and suspects come one after the other.
    """
    gate = asyncio.Semaphore(concurrency)

    async def resume(record: ConversationRecord) -> None:
        try:
            if await guard.holds_back(record):
                return
            await guard.admit(record)
            async with gate:
                await start(record.id)
        except DrydockError as error:
            logger.warning("conversation %s could not be resumed: %s", record.id, error)
        except Exception:
            # A bug, or a record that cannot be read: of this one alone, the others go on.
            logger.exception("conversation %s could not be resumed", record.id)

    records = await conversations.in_states({state.value for state in BUSY_STATES})
    if not records:
        return
    records.sort(key=lambda record: record.last_updated_at or record.created_at, reverse=True)
    of_users, chosen = Counter[str](), []
    for record in records:
        of_users[record.user_id] += 1
        if of_users[record.user_id] <= limit:
            chosen.append(record)
    logger.info("resuming %d of %d conversations that were at work", len(chosen), len(records))
    async with asyncio.TaskGroup() as group:
        for record in chosen:
            group.create_task(resume(record), name=f"resume:{record.id}")


async def find_unattended(conversations: ConversationRepository, sandboxes: Sandboxes) -> AsyncIterator[str]:
    """The ids of all conversations, newest first, whose sandbox an earlier process left running or paused."""
    page_id = None
    while True:
        page = await conversations.list_page(limit=PAGE, page_id=page_id)
        for record in page.results:
            if record.sandbox is not None and await _is_up(record, sandboxes):
                yield record.id
        page_id = page.next_page_id
        if page_id is None:
            return


async def _is_up(record: ConversationRecord, sandboxes: Sandboxes) -> bool:
    try:
        return await (await sandboxes.sandbox(record)).poll() in (SandboxStatus.RUNNING, SandboxStatus.PAUSED)
    except DrydockError as error:
        logger.debug("the sandbox of conversation %s could not be looked at: %s", record.id, error)
        return False
