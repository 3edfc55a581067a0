"""The answers that the runtime itself gives to actions: refused, interrupted, failed."""

from __future__ import annotations

from agent_core.events.classification import ErrorClassification
from agent_core.events.llm_events import ActionDecision, ActionEvent, AgentErrorEvent, UserRejectObservation
from agent_core.tools.truncation import maybe_truncate

STOPPED_ID = "AGENT_ERROR$ERROR_ACTION_NOT_EXECUTED_STOPPED"
MAX_ERROR_CHARS = 30_000
FAILED_ID = "AGENT_ERROR$ERROR_ACTION_NOT_EXECUTED_ERROR"

LOST = (
    "The server was restarted, and whoever knew about this action is gone: it is unknown whether it took effect, "
    "wholly or in part. Look before you repeat it."
)


NOT_BEGUN = "The server was restarted before it could run."
BROKEN_OFF = "The server was restarted before it was done; what it had done by then stands."


def rejection(action: ActionEvent, decision: ActionDecision) -> UserRejectObservation:
    """The answer to an action that the user refused."""
    extra = {"rejection_reason": f"the user refused it and said: {decision.reason}"} if decision.reason else {}
    return UserRejectObservation(cause=action.id, tool_name=action.tool_name, tool_call_id=action.tool_call_id, **extra)


def interrupted(action: ActionEvent, text: str) -> AgentErrorEvent:
    """The answer to an action that was stopped, before it ran or while it did."""
    return failure(action, text, classification=ErrorClassification.INTERRUPTED, error_id=STOPPED_ID)


def failure(
    action: ActionEvent,
    text: str,
    *,
    classification: ErrorClassification = ErrorClassification.AGENT_ACTION,
    error_id: str = "",
) -> AgentErrorEvent:
    """The answer to an action that could not be done."""
    return AgentErrorEvent(
        source=action.source,
        cause=action.id,
        error=maybe_truncate(text, MAX_ERROR_CHARS),
        tool_name=action.tool_name,
        tool_call_id=action.tool_call_id,
        classification=classification,
        error_id=error_id,
    )
