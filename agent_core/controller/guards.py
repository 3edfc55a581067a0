"""Guards: limits and stuck detection stop an agent; failures are put into words."""

from __future__ import annotations

from agent_core.controller.limits import Limits
from agent_core.controller.state import ConversationState
from agent_core.controller.stuck import StuckDetector
from agent_core.errors import AgentStuckInLoopError, DrydockError, LimitReachedError, LLMError, NoCondensationError
from agent_core.events.control import ConversationError, LoopDetected
from agent_core.events.llm_events import MessageEvent
from agent_core.events.messages import Message
from agent_core.events.serialization import AnyEvent

MAX_EMPTY_REPLIES = 3
MAX_FRUITLESS_REPLIES = 25


def check_limits(state: ConversationState) -> None:
    """Whether the agent may ask its model once more.

    Raises:
        LimitReachedError: it may not; its user can send a message to let it go on.
    """
    limits = state.limits
    if state.iterations >= limits.iteration_limit:
        raise LimitReachedError(
            f"Agent reached maximum iteration. Current iteration: {state.iterations},"
            f" max iteration: {limits.iteration_limit}",
            code="MaxIterationsReached",
        )
    check_budget(limits, state.metrics.accumulated_cost)
    if state.empty_replies >= MAX_EMPTY_REPLIES:
        raise DrydockError(
            f"the model sent {state.empty_replies} empty replies in a row (neither text nor a tool call that could be"
            " read); try again, or choose another model"
        )
    if state.fruitless_replies >= MAX_FRUITLESS_REPLIES:
        raise DrydockError(
            f"the last {state.fruitless_replies} replies of the model held no tool call that could be run;"
            " try again, or choose another model"
        )


def check_budget(limits: Limits, cost: float) -> None:
    """Whether there is money left.

    Raises:
        LimitReachedError: there is none; the user can send a message to let the agent go on.
    """
    if limits.budget_limit is not None and cost >= limits.budget_limit:
        raise LimitReachedError(
            f"Agent reached maximum budget for conversation.Current budget: {cost:.4f},"
            f" max budget: {limits.budget_limit:.4f}",
            code="MaxBudgetReached",
        )


def check_progress(detector: StuckDetector) -> None:
    """Whether the agent still gets anywhere.

    Raises:
        AgentStuckInLoopError: it repeats itself.
    """
    if (pattern := detector.pattern()) is not None:
        raise AgentStuckInLoopError(str(pattern), start=detector.start_of(pattern))


def nudge(detector: StuckDetector) -> MessageEvent | None:
    """A word of warning to an agent that is about to get stuck, once per occasion."""
    error_id = detector.to_nudge()
    if error_id is None:
        return None
    text = (
        "The same call has failed several times now. Do not repeat it: read the error again, change the call, or try"
        " another way. If there is none, say so to the user."
    )
    return MessageEvent(source="environment", cause=error_id, llm_message=Message.user(text))


def error_events(error: Exception, detail: str) -> list[AnyEvent]:
    """What the log is to say of a failed step, for programs.

    An agent that is stuck has not failed (8.4): of it the log tells the loop.
    """
    if isinstance(error, AgentStuckInLoopError):
        return [LoopDetected(start=error.start, pattern=str(error))]
    code = error.code if isinstance(error, LimitReachedError) else type(error).__name__
    return [ConversationError(code=code, detail=detail)]


def failure_of(error: Exception) -> tuple[str, str]:
    """The public reason of a failed step, and the text for people: what happened and what to do."""
    if isinstance(error, LimitReachedError):
        return f"RuntimeError: {error}", f"{error}. Send a message to let the agent go on."
    if isinstance(error, AgentStuckInLoopError):
        text = f"The agent got stuck in a loop: {error}. Send a message to set it on another course."
        return f"{type(error).__name__}: Agent got stuck in a loop", text
    if isinstance(error, NoCondensationError):
        text = (
            f"The history of the conversation was to be made shorter and cannot be: {error}."
            " If it is too long for the model, use one with a larger context window, or begin a new conversation."
        )
        return f"{type(error).__name__}: {error}", text
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
