"""`LoadedConversation`: what is there of a conversation while it is loaded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from agent_core.errors import DrydockError
from agent_core.events.control import ConversationError
from agent_core.events.transient import DISK_RESERVE, StatusNotice
from agent_core.runtime.channel.connection import SandboxConnection
from agent_core.session.agent_session import AfterClose
from agent_core.troubles import Trouble, coded
from server.session.agents.agent_sessions import LoadedAgent
from server.session.recorder import Recorder
from server.session.tickets import Ticket

logger = logging.getLogger(__name__)

READER_SECONDS: Final = 5.0
TellTrouble = Callable[[Trouble, str], None]


@dataclass(slots=True, eq=False)
class LoadedConversation:
    """Its agent, the place that this takes, and the tasks that start the agent and read the log until `close`.

    `frozen` says why its sandbox is frozen, as long as it is.
    """

    agent: LoadedAgent
    ticket: Ticket
    is_programs: bool
    recorder: Recorder
    readers: Sequence[asyncio.Task[None]]
    starting: asyncio.Task[None]
    frozen: str = ""

    @property
    def runtime_status(self) -> str:
        return DISK_RESERVE if self.frozen else self.agent.runtime_status

    @property
    def runtime_warning(self) -> str:
        return self.frozen or self.agent.runtime_warning

    async def freeze(self, problem: str, tell: TellTrouble) -> None:
        """Have its sandbox stand still; the log and its clients say why, and `tell` is told what of that failed."""
        agent = self.agent
        if not isinstance(agent.sandbox, SandboxConnection):
            return
        self.frozen = problem
        try:
            await agent.sandbox.freeze(problem)
        except DrydockError as error:
            tell(Trouble.SANDBOX_NOT_STOPPED, f"its sandbox could not be frozen: {error}")
        agent.stream.publish(StatusNotice(DISK_RESERVE, problem, "error"))
        try:
            await agent.stream.add_event(ConversationError(code="DiskReserve", detail=problem))
        except DrydockError as error:
            tell(Trouble.OTHER, f"that it is frozen was not stored: {error}")

    async def thaw(self) -> None:
        """Have its sandbox go on."""
        self.frozen = ""
        if isinstance(self.agent.sandbox, SandboxConnection):
            await self.agent.sandbox.resume()
            self.agent.stream.publish(StatusNotice("STATUS$READY", "There is room on the disk again."))

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
