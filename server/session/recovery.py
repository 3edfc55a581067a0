"""Recovery: takes up what the process before left, agents that were at work and their sandboxes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

from agent_core.errors import DrydockError, EventStoreError
from agent_core.runtime.sandbox import SandboxStatus
from server.db.repositories.conversations import ConversationRecord, ConversationRepository
from server.session.crash_guard import CrashGuard
from server.session.recorder import BUSY_STATES
from server.session.run_queue import PlaceLostError, RunQueue, Ticket
from server.session.sandboxes import Sandboxes

logger = logging.getLogger(__name__)

PAGE = 100
AGAIN_SECONDS = 5.0
"""After so long it is tried again to resume a conversation while nothing can be stored or read."""


async def resume_interrupted(
    conversations: ConversationRepository,
    start: Callable[[str], Awaitable[object]],
    queue: RunQueue,
    guard: CrashGuard,
    *,
    concurrency: int,
) -> None:
    """Start conversations whose agent was at work, `concurrency` at a time, each when its turn has come.

    Those that were at work go before those that waited, which keep their order. What the `guard` holds back is left
    out, and suspects come one after the other.
    """
    gate = asyncio.Semaphore(concurrency)

    async def resume(record: ConversationRecord) -> None:
        try:
            # What is held back may be open: then its session has the ticket.
            while not await guard.holds_back(record):
                try:
                    await take_up(record, queue.ticket(record.id, record.user_id))
                    return
                except EventStoreError as error:
                    if not error.code:
                        raise
                    logger.warning("conversation %s cannot be resumed yet: %s", record.id, error)
                    await asyncio.sleep(AGAIN_SECONDS)
        except PlaceLostError:
            return  # stopped, or removed
        except DrydockError as error:
            logger.warning("conversation %s could not be resumed: %s", record.id, error)
        except Exception:
            # A bug, or a record that cannot be read: of this one alone, the others go on.
            logger.exception("conversation %s could not be resumed", record.id)

    async def take_up(record: ConversationRecord, ticket: Ticket) -> None:
        try:
            await queue.enter(ticket, to_work=True, number=record.waiting_number or 0)
            await guard.admit(record)
            async with gate:
                await start(record.id)
        except Exception:
            queue.leave(ticket)
            raise

    busy = {state.value for state in BUSY_STATES}
    await conversations.forget_places(busy)  # a server that is killed just then does not write down that a turn came
    records = await conversations.in_states(busy)
    if not records:
        return
    queue.begin_after(max(record.waiting_number or 0 for record in records))
    logger.info("resuming %d conversations that were at work", len(records))
    async with asyncio.TaskGroup() as group:
        for record in records:
            group.create_task(resume(record), name=f"resume:{record.id}")


async def find_unattended(conversations: ConversationRepository, sandboxes: Sandboxes) -> AsyncIterator[str]:
    """The ids of all conversations whose sandbox an earlier process left running or paused."""
    after = ""
    while page := await conversations.of_all_users(after=after, limit=PAGE):
        for record in page:
            if record.sandbox is not None and await _is_up(record, sandboxes):
                yield record.id
        after = page[-1].id


async def _is_up(record: ConversationRecord, sandboxes: Sandboxes) -> bool:
    try:
        return await (await sandboxes.sandbox(record)).poll() in (SandboxStatus.RUNNING, SandboxStatus.PAUSED)
    except DrydockError as error:
        logger.debug("the sandbox of conversation %s could not be looked at: %s", record.id, error)
        return False
