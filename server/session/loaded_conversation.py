"""`LoadedConversation`: what is there of a conversation while it is loaded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, NamedTuple

from agent_core.errors import DrydockError
from agent_core.session.agent_session import AfterClose
from agent_core.troubles import Trouble, coded
from server.session.agents.agent_sessions import LoadedAgent
from server.session.recorder import Recorder
from server.session.run_queue import Ticket

logger = logging.getLogger(__name__)

READER_SECONDS: Final = 5.0


class LoadedConversation(NamedTuple):
    """Its agent, the place that this takes, and the tasks that start the agent and read the log until `close`."""

    agent: LoadedAgent
    ticket: Ticket
    is_programs: bool
    recorder: Recorder
    readers: Sequence[asyncio.Task[None]]
    starting: asyncio.Task[None]

    async def close(self, *, stopped: bool, sandbox: AfterClose) -> None:
        """End the agent, as `AgentSession.close` does, and the tasks once they have read to the end of the log."""
        if self.agent.has_failed:
            await asyncio.wait([self.starting], timeout=READER_SECONDS)  # it writes down that it failed
        await _cancelled(self.starting)
        await self.agent.close(stopped=stopped, sandbox=sandbox)
        await self._finished()

    async def _finished(self) -> None:
        _, late = await asyncio.wait(self.readers, timeout=READER_SECONDS)
        for reader in self.readers:
            who, where = reader.get_name(), self.ticket.conversation_id
            if reader in late:
                extra = coded(Trouble.OTHER, where)
                logger.warning("conversation %s: its %s did not come to the end of the log", where, who, extra=extra)
                await _cancelled(reader)
            elif not reader.cancelled() and (error := reader.exception()) is not None:
                is_ours = not isinstance(error, DrydockError)
                extra = coded(Trouble.UNEXPECTED if is_ours else Trouble.STORAGE_UNREADABLE, where)
                bug = error if is_ours else None
                logger.error("conversation %s: its %s failed: %s", where, who, error, exc_info=bug, extra=extra)


async def _cancelled(task: asyncio.Task[None]) -> None:
    if not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=READER_SECONDS)  # a listener of somebody's own may hold out
