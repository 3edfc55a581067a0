"""What the controller writes as it stands in its state: first states, questions to the memory, decisions (7.7, 8.5)."""

from __future__ import annotations

from typing import Literal

from agent_core.controller.state import INTERRUPTING, RESUMABLE, ConversationState
from agent_core.events.control import AgentState, AgentStateChanged, ChangeAgentState, RecallAction
from agent_core.events.llm_events import ActionDecision
from agent_core.events.serialization import AnyEvent


def first_state(state: ConversationState, *, has_initial: bool) -> list[AnyEvent]:
    """How a conversation goes on that has been loaded: as it was, or with what its user has said since.

    Where actions await the user's word it waits still: a message that came meanwhile refuses them then (6.4).
    """
    before = state.resumable if state.resumable in RESUMABLE else None
    if state.undecided and state.resumable not in INTERRUPTING:
        return [AgentStateChanged(agent_state=AgentState.AWAITING_USER_CONFIRMATION)]
    if has_initial or state.wants_attention:
        return [ChangeAgentState(agent_state=AgentState.RUNNING)]
    if before is None or before is AgentState.AWAITING_USER_INPUT:
        wanted = AgentState.AWAITING_USER_INPUT
        return [ChangeAgentState(agent_state=wanted), AgentStateChanged(agent_state=wanted)]
    if before is AgentState.AWAITING_USER_CONFIRMATION:
        before = AgentState.AWAITING_USER_INPUT
    return [AgentStateChanged(agent_state=before)]


def recalls(state: ConversationState) -> list[AnyEvent]:
    """A question to the memory for each message of the user that it was not asked about; the first is a wider one."""
    first = state.user_messages == len(state.unrecalled)
    asked: list[AnyEvent] = []
    for message_id, text in sorted(state.unrecalled.items()):
        kind = "workspace_context" if first and not asked else "knowledge"
        asked.append(RecallAction(recall_type=kind, query=text, cause=message_id))
    return asked


def decisions(state: ConversationState, *, is_confirmed: bool, reason: str) -> list[AnyEvent]:
    """The user's word on each action that awaits it."""
    decision: Literal["confirmed", "rejected"] = "confirmed" if is_confirmed else "rejected"
    return [
        ActionDecision(cause=action.id, decision=decision, action=action, reason=reason)
        for action in state.undecided.values()
    ]
