"""What stops an agent: its limits, and failures put into words (agent-core 8.6, wire-protocol 3.7 and 5)."""

from __future__ import annotations

from agent_core.controller.state import ConversationState
from agent_core.errors import DrydockError, LimitReachedError, LLMError

MAX_EMPTY_REPLIES = 3


def check_limits(state: ConversationState) -> None:
    """Whether the agent may ask its model once more.

    Raises:
        LimitReachedError: it may not; its user can send a message to let it go on.
    """
    limits, cost = state.limits, state.metrics.accumulated_cost
    if state.iterations >= limits.iteration_limit:
        raise LimitReachedError(
            f"Agent reached maximum iteration. Current iteration: {state.iterations},"
            f" max iteration: {limits.iteration_limit}"
        )
    if limits.budget_limit is not None and cost >= limits.budget_limit:
        raise LimitReachedError(
            f"Agent reached maximum budget for conversation.Current budget: {cost:.4f},"
            f" max budget: {limits.budget_limit:.4f}"
        )
    if state.empty_replies >= MAX_EMPTY_REPLIES:
        raise DrydockError(
            f"the model sent {state.empty_replies} empty replies in a row; try again, or choose another model"
        )


def failure_of(error: Exception) -> tuple[str, str]:
    """The public reason of a failed step, and the text for people: what happened and what to do."""
    if isinstance(error, LimitReachedError):
        return f"RuntimeError: {error}", f"{error}. Send a message to let the agent go on."
    if isinstance(error, LLMError):
        reason = error.status_id if error.status_id != "STATUS$ERROR" else f"{type(error).__name__}: {error}"
        return reason, str(error)
    if isinstance(error, DrydockError):
        return f"{type(error).__name__}: {error}", str(error)
    text = (
        f"There was an unexpected error while running the agent: {type(error).__name__}."
        " You can refresh the page or ask the agent to try again."
    )
    return f"RuntimeError: {text}", text
