"""Guards and notices: limits that stop an agent, failures in words, and what the controller itself says."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final
from uuid import uuid4

from agent_core.agent.critic import CriticBase
from agent_core.agent.vision import is_blind
from agent_core.controller.state import CRITIC, ControllerState, Limits
from agent_core.errors import (
    AgentStuckInLoopError,
    DrydockError,
    LimitReachedError,
    LLMContentPolicyError,
    LLMError,
    NoCondensationError,
)
from agent_core.events.classification import ErrorClassification
from agent_core.events.control import ConversationError, LoopDetected
from agent_core.events.llm_events import AgentErrorEvent, MessageEvent
from agent_core.events.messages import Message, TextContent
from agent_core.events.serialization import AnyEvent
from agent_core.llm.llm import LLM
from agent_core.tools.vision_inspect import VisionInspectTool
from agent_core.troubles import trouble_of

MAX_EMPTY_REPLIES = 3
MAX_FRUITLESS_REPLIES = 25


def check_limits(state: ControllerState) -> None:
    """Raise `LimitReachedError` where the agent may not ask its model again until its user sends a message."""
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
    """Raise `LimitReachedError` where there is no money left."""
    if limits.budget_limit is not None and cost >= limits.budget_limit:
        raise LimitReachedError(
            f"Agent reached maximum budget for conversation.Current budget: {cost:.4f},"
            f" max budget: {limits.budget_limit:.4f}",
            code="MaxBudgetReached",
        )


FAULT: Final = "Something failed that should not, and the log says what. Send a message to try again."
"""What people are told of an error that nobody has foreseen; its own words are for those who can mend it."""


def error_events(error: Exception, detail: str) -> list[AnyEvent]:
    """The events of a failed step, for programs; a stuck agent has not failed, but looped."""
    if isinstance(error, AgentStuckInLoopError):
        return [LoopDetected(start=error.start, pattern=str(error))]
    code = error.code if isinstance(error, LimitReachedError) else type(error).__name__
    return [ConversationError(code=code, detail=detail)]


def has_name(error: DrydockError) -> bool:
    """Whether its event tells by itself what kind of trouble it is."""
    return isinstance(error, LimitReachedError | AgentStuckInLoopError) or trouble_of(type(error).__name__) is not None


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
    reason = (  # the protocol's words
        f"There was an unexpected error while running the agent: {type(error).__name__}."
        " You can refresh the page or ask the agent to try again."
    )
    return f"RuntimeError: {reason}", FAULT


def blind(llm: LLM, state: ControllerState, tools: Collection[str]) -> MessageEvent | None:
    """The answer to images that the model cannot see; None when it can, or a tool among these looks at them."""
    if not state.shows_images or VisionInspectTool.tool_name in tools or not is_blind(llm):
        return None
    text = (
        f"The model {llm.model} cannot see images, so I cannot answer this. Describe in words what they show, or choose"
        " a model that takes images."
    )
    message = Message(role="assistant", content=[TextContent(text=text)])
    return MessageEvent(source="agent", llm_message=message, wait_for_response=True, seen=state.last_event_id)


def refinement(critic: CriticBase | None, state: ControllerState) -> MessageEvent | None:
    """What an agent is told whose finish its critic found wanting; None when it may rest."""
    config = critic.iterative_refinement if critic is not None else None
    result = state.finish_result
    if config is None or result is None or state.refinements >= config.max_iterations:
        return None
    if result.score >= config.success_threshold:
        return None
    text = (
        f"Your result was judged, and is not good enough yet (score {result.score:.2f}, {config.success_threshold:.2f}"
        f" is wanted). {result.message} See what is missing, mend it, check it, and finish again."
    )
    return MessageEvent(source="environment", sender=CRITIC, llm_message=Message.user(text))


def rephrase(error: LLMContentPolicyError, state: ControllerState) -> MessageEvent:
    """What an agent is told whose request was refused; as an empty reply, so it is raised when said often enough."""
    if state.empty_replies + 1 >= MAX_EMPTY_REPLIES:
        raise error
    text = (
        "The provider refused to answer the last request, by its content policy. Put what you want to say or do in"
        " other words, and leave out what may be objected to."
    )
    return MessageEvent(
        source="environment",
        llm_message=Message.user(text),
        llm_response_id=f"refused-{uuid4().hex}",
        seen=state.last_event_id,
    )


def answers_to_invalid_calls(state: ControllerState) -> list[AnyEvent]:
    """Errors for calls that could not be validated, which a crash or a full disk has kept out of the log."""
    text = "The call could not be validated; check its name and arguments and try again."
    return [
        AgentErrorEvent.answering(event, text, ErrorClassification.AGENT_ACTION)
        for event in state.unanswered.values()
        if event.action is None
    ]
