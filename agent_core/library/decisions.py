"""The program's word on what its conversation waits for: confirmation, and answers of tools that it carries out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from agent_core.events.control import AgentState, AgentStateChanged, ClientToolResult
from agent_core.events.llm_events import ActionDecision, UserRejectObservation
from agent_core.events.messages import TextContent
from agent_core.events.serialization import AnyEvent
from agent_core.library.run_loop import RunLoop

logger = logging.getLogger(__name__)


class Decisions:
    """Writes them down, in the library's loop."""

    def __init__(self, work: RunLoop) -> None:
        self._work = work
        self._deciding = asyncio.Lock()

    async def reject(self, reason: str, only: Collection[int] | None = None) -> None:
        """Refuse each action that has no answer, or `only` those of these ids, for this reason.

        An agent that waited is idle afterwards, unless actions are left about which nothing is decided.
        """
        async with self._deciding:  # two refusals at once would both find the same actions
            await self._reject(reason, only)

    async def answer_client_call(self, call_id: int, content: str, *, is_error: bool) -> None:
        """Pass on what came of a call.

        Raises:
            ClientToolError: it does not wait for an answer, or got another one before.
        """
        said = [TextContent(text=content)] if content else []
        async with self._work.session() as session:
            await session.send(ClientToolResult(cause=call_id, content=list(said), is_error=is_error))

    async def _reject(self, reason: str, only: Collection[int] | None) -> None:
        work = self._work
        fold = await work.log.present()
        waiting = [action for action in fold.core.unanswered.values() if action.action is not None]
        pending = [action for action in waiting if only is None or action.id in only]
        if not pending or work.session_at_work is not None:
            logger.warning("conversation %s: there are no actions to reject", work.conversation_id)
            return
        is_idle = fold.state is AgentState.AWAITING_USER_CONFIRMATION and len(pending) == len(waiting)
        decisions = await work.write(
            *(ActionDecision(cause=one.id, decision="rejected", action=one, reason=reason) for one in pending)
        )
        refusals: list[AnyEvent] = [
            UserRejectObservation(
                cause=action.id,
                tool_name=action.tool_name,
                tool_call_id=action.tool_call_id,
                rejection_reason=reason,
                reissued_as=decision.id,
            )
            for action, decision in zip(pending, decisions, strict=True)
        ]
        idle = AgentStateChanged(agent_state=AgentState.AWAITING_USER_INPUT)
        await work.write(*refusals, *([idle] if is_idle else []))
