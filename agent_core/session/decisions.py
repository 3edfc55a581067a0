"""The user's word on what awaits confirmation, given between the runs of a library's conversation."""

from __future__ import annotations

import logging
from collections.abc import Collection

from agent_core.events.control import AgentState, AgentStateChanged
from agent_core.events.llm_events import ActionDecision, UserRejectObservation
from agent_core.events.serialization import AnyEvent
from agent_core.session.conversation_loop import ConversationLoop

logger = logging.getLogger(__name__)


async def reject_pending(work: ConversationLoop, reason: str, only: Collection[int] | None = None) -> None:
    """Refuse each action that has no answer, or `only` those of these ids, for this reason.

    An agent that waited is idle afterwards, unless actions are left about which nothing is decided.
    """
    async with work.deciding:  # two refusals at once would both find the same actions
        await _reject(work, reason, only)


async def _reject(work: ConversationLoop, reason: str, only: Collection[int] | None) -> None:
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
