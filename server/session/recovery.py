"""Recovery: takes up what the process before left, agents that were at work and their sandboxes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from agent_core.errors import DrydockError, EventStoreError
from agent_core.runtime.sandbox import SandboxStatus
from agent_core.troubles import Trouble, coded
from server.db.repositories.conversations import ConversationRecord, ConversationRepository
from server.session.crash_guard import CrashGuard
from server.session.recorder import BUSY_STATES
from server.session.run_queue import PlaceLostError, RunQueue, Ticket
from server.session.sandboxes import Sandboxes

logger = logging.getLogger(__name__)

PAGE = 100
_NAMED = 20
"""As many are named in the line that tells how many there are."""
AGAIN_SECONDS = 5.0
"""After so long it is tried again to resume a conversation while nothing can be stored or read."""


async def interrupted(conversations: ConversationRepository) -> list[ConversationRecord]:
    """Those whose agents were at work, or waited for their turn, when the last server ended."""
    busy = {state.value for state in BUSY_STATES}
    await conversations.forget_places(busy)  # a server that is killed just then does not write down that a turn came
    return await conversations.in_states(busy)


async def resume_interrupted(
    records: Sequence[ConversationRecord],
    start: Callable[[str], Awaitable[object]],
    queue: RunQueue,
    guard: CrashGuard,
    *,
    concurrency: int,
) -> None:
    """Open the queue, and start these conversations, `concurrency` at a time, each when its turn has come.

    Those that were at work go before those that waited, which keep their order, and both before whoever comes new. What
    the `guard` holds back is left out, and suspects come one after the other.
    """
    gate = asyncio.Semaphore(concurrency)
    # A stop or a removal takes the ticket away from now on. Who is held back may be open: then its session has it, too.
    tickets = [queue.ticket(record.id, record.user_id) for record in records]

    async def resume(record: ConversationRecord, ticket: Ticket) -> None:
        try:
            while not await has_begun(record, ticket):  # noqa: ASYNC110 - a disk says nothing by itself
                await asyncio.sleep(AGAIN_SECONDS)
        except PlaceLostError:
            return  # stopped, or removed
        except Exception as error:
            queue.leave(ticket)
            bug = None if isinstance(error, DrydockError) else error  # or a record that cannot be read
            extra = coded(Trouble.NOT_RESUMED, record.id)
            logger.warning("conversation %s could not be resumed: %s", record.id, error, exc_info=bug, extra=extra)

    async def has_begun(record: ConversationRecord, ticket: Ticket) -> bool:
        try:
            if not await guard.holds_back(record):
                await take_up(record, ticket)
        except EventStoreError as error:
            if not error.code:
                raise
            extra = coded(Trouble.NOT_RESUMED, record.id)
            logger.warning("conversation %s cannot be resumed yet: %s", record.id, error, extra=extra)
            return False
        return True

    async def take_up(record: ConversationRecord, ticket: Ticket) -> None:
        await queue.enter(ticket, to_work=True, number=record.waiting_number or 0)
        await guard.admit(record)
        async with gate:
            if ticket.is_void:
                await guard.came_to_rest(record.id)
            else:
                await start(record.id)

    if records:
        extra = coded(Trouble.INTERRUPTED, times=len(records))
        which = ", ".join(record.id for record in records[:_NAMED]) + ", …" * (len(records) > _NAMED)
        logger.info("resuming %d conversations that were at work: %s", len(records), which, extra=extra)
        queue.begin_after(max(record.waiting_number or 0 for record in records))
    await asyncio.gather(*map(guard.holds_back, records), return_exceptions=True)  # what fails here is told below
    async with asyncio.TaskGroup() as group:
        for record, ticket in zip(records, tickets, strict=True):
            group.create_task(resume(record, ticket), name=f"resume:{record.id}")
        await asyncio.sleep(0)  # each takes its place
        queue.open()


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
