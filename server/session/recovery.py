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
from server.session.run_queue import PlaceLostError, RunQueue
from server.session.sandboxes import Sandboxes
from server.session.tickets import Ticket

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


class Recovery:
    """Starts conversations that were at work before, each when its turn has come, `concurrency` at a time."""

    def __init__(
        self, start: Callable[[str], Awaitable[object]], queue: RunQueue, guard: CrashGuard, *, concurrency: int
    ) -> None:
        self._start = start
        self._queue = queue
        self._guard = guard
        self._gate = asyncio.Semaphore(concurrency)

    async def resume_all(self, records: Sequence[ConversationRecord]) -> None:
        """Open the queue, and start these.

        Those that were at work go before those that waited, which keep their order, and both before whoever comes new.
        What the guard holds back is left out, and suspects come one after the other, those with the fewest failures
        first: where somebody else ends the server again and again, it is not always the same one's turn then.
        """
        guard, queue = self._guard, self._queue
        # A stop or a removal takes the ticket away from now on. Who is held back may be open, and has it then, too.
        tickets = [queue.ticket(record.id, record.user_id) for record in records]
        if records:
            extra = coded(Trouble.INTERRUPTED, times=len(records))
            which = ", ".join(record.id for record in records[:_NAMED]) + ", …" * (len(records) > _NAMED)
            logger.info("resuming %d conversations that were at work: %s", len(records), which, extra=extra)
            await queue.begin_after(max(record.waiting_number or 0 for record in records))
        await asyncio.gather(*map(guard.holds_back, records), return_exceptions=True)  # what fails here is told below
        async with asyncio.TaskGroup() as group:
            pairs = zip(records, tickets, strict=True)
            for record, ticket in sorted(pairs, key=lambda pair: guard.failures(pair[0].id)):
                resuming = self.resume(record, ticket, number=record.waiting_number or 0)
                group.create_task(resuming, name=f"resume:{record.id}")
            await asyncio.sleep(0)  # each takes its place
            queue.open()

    async def resume(self, record: ConversationRecord, ticket: Ticket, *, number: int | None = None) -> None:
        """Start this one, at its place (`number`) or behind all who wait; not while it is held back."""
        try:
            while not await self._has_begun(record, ticket, number):  # noqa: ASYNC110 - a disk says nothing by itself
                await asyncio.sleep(AGAIN_SECONDS)
        except PlaceLostError:
            return  # stopped, or removed
        except Exception as error:
            self._queue.leave(ticket)
            bug = None if isinstance(error, DrydockError) else error  # or a record that cannot be read
            extra = coded(Trouble.NOT_RESUMED, record.id)
            logger.warning("conversation %s could not be resumed: %s", record.id, error, exc_info=bug, extra=extra)

    async def _has_begun(self, record: ConversationRecord, ticket: Ticket, number: int | None) -> bool:
        try:
            if not await self._guard.holds_back(record):
                await self._take_up(record, ticket, number)
        except EventStoreError as error:
            if not error.code:
                raise
            extra = coded(Trouble.NOT_RESUMED, record.id)
            logger.warning("conversation %s cannot be resumed yet: %s", record.id, error, extra=extra)
            return False
        return True

    async def _take_up(self, record: ConversationRecord, ticket: Ticket, number: int | None) -> None:
        await self._queue.enter(ticket, to_work=True, number=number)
        await self._guard.admit(record)
        async with self._gate:
            if ticket.is_void:
                await self._guard.came_to_rest(record.id)
            else:
                await self._guard.begin(record.id)  # not before: who waits at the gate has no life yet
                await self._start(record.id)


async def may_be_up(conversations: ConversationRepository, sandboxes: Sandboxes) -> AsyncIterator[ConversationRecord]:
    """Those of which the provider says that their sandbox is up; where it does not tell, all that have one."""
    running = await sandboxes.running()
    if running is not None:
        for one in sorted(running):
            record = await conversations.get(one)
            if record is not None and record.sandbox is not None:
                yield record
        return
    after = ""
    while page := await conversations.having_sandboxes(after=after, limit=PAGE):
        for record in page:
            if record.sandbox is not None:  # it may be damaged
                yield record
        after = page[-1].id


async def is_up(record: ConversationRecord, sandboxes: Sandboxes) -> bool:
    """Whether its sandbox runs, or is paused; False where that cannot be told."""
    try:
        return await (await sandboxes.sandbox(record)).poll() in (SandboxStatus.RUNNING, SandboxStatus.PAUSED)
    except DrydockError as error:
        logger.debug("the sandbox of conversation %s could not be looked at: %s", record.id, error)
        return False
