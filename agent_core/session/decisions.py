"""The user's word on what awaits confirmation, given between the runs of a library's conversation (agent-core 6.4)."""

from __future__ import annotations

import logging

from agent_core.events.control import AgentState, AgentStateChanged
from agent_core.events.llm_events import ActionDecision, UserRejectObservation
from agent_core.events.serialization import AnyEvent
from agent_core.session.conversation_loop import ConversationLoop

logger = logging.getLogger(__name__)


async def reject_pending(work: ConversationLoop, reason: str) -> None:
    """Refuse each action that has no answer, for this reason; the agent is idle afterwards, if it was waiting."""
    fold = await work.log.present()
    pending = [action for action in fold.core.unanswered.values() if action.action is not None]
    if not pending or work.session_at_work is not None:
        logger.warning("conversation %s: there are no actions to reject", work.conversation_id)
        return
    waited = fold.state is AgentState.AWAITING_USER_CONFIRMATION
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
    await work.write(*refusals, *([idle] if waited else []))
