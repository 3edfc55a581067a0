"""Reading along what a session of a library's conversation writes: its callbacks hear it, its status is folded."""

from __future__ import annotations

import asyncio

from agent_core.events.branches import Rewind
from agent_core.events.transient import Transient
from agent_core.session.agent_session import AgentSession
from agent_core.session.callbacks import Callbacks
from agent_core.session.conversation_log import ConversationLog
from agent_core.session.session_facts import AT_REST, LOOK_SECONDS
from agent_core.session.status import StatusFold


class Follower:
    """Follows the stream of one session to its end, from behind what `fold` has seen."""

    def __init__(
        self,
        session: AgentSession,
        log: ConversationLog,
        fold: StatusFold,
        callbacks: Callbacks,
        *,
        behind: Follower | None = None,
    ) -> None:
        """It begins when the follower that it is `behind`, of an earlier session, has read all."""
        self._session = session
        self._log = log
        self._fold = fold
        self._callbacks = callbacks
        self._moved = asyncio.Event()
        self._task = asyncio.create_task(self._follow(behind), name=f"callbacks:{session.conversation_id}")
        self._task.add_done_callback(lambda _task: self._moved.set())

    async def _follow(self, behind: Follower | None) -> None:
        if behind is not None:
            await behind.end()
        transients = self._callbacks.wants_tokens
        async with self._session.stream.subscribe(after=self._fold.last_id, transients=transients) as events:
            async for event in events:
                await self._callbacks.tell(event)
                if isinstance(event, Transient):
                    continue
                self._fold.observe(event)
                if isinstance(event, Rewind):
                    await self._log.rejoin(self._fold)
                self._moved.set()

    async def next_move(self) -> bool:
        """Wait for the next event; whether there may be more of them."""
        self._moved.clear()
        if self._task.done():
            return False
        await self._moved.wait()
        return True

    async def rest(self) -> None:
        """Wait until the agent does nothing more by itself, and the callbacks have seen all that it did.

        Raises:
            EventStoreError: the log could not be read on.
        """
        fold = self._fold
        while True:
            self._moved.clear()
            if self._task.done():
                self._task.result()
                return
            if fold.state not in AT_REST or fold.awaits_change or fold.last_id < self._session.stream.last_id:
                await self._moved.wait()
            elif self._session.is_at_rest:
                return
            else:  # its controller reads the same events, a moment later
                await asyncio.sleep(LOOK_SECONDS)

    async def end(self) -> None:
        """Wait until it has read all; the stream is closed."""
        await asyncio.wait([self._task])
