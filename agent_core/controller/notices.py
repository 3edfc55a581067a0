"""Notices: messages of the controller itself, to agents and users, when a step cannot go its usual way."""

from __future__ import annotations

from collections.abc import Collection
from uuid import uuid4

from agent_core.agent.critic import CriticBase
from agent_core.agent.vision import is_blind
from agent_core.controller.guards import MAX_EMPTY_REPLIES
from agent_core.controller.state import CRITIC, ConversationState
from agent_core.errors import LLMContentPolicyError
from agent_core.events.classification import ErrorClassification
from agent_core.events.llm_events import AgentErrorEvent, MessageEvent
from agent_core.events.messages import Message, TextContent
from agent_core.events.serialization import AnyEvent
from agent_core.llm.llm import LLM
from agent_core.tools.vision_inspect import VisionInspectTool


def blind(llm: LLM, state: ConversationState, tools: Collection[str]) -> MessageEvent | None:
    """The answer to images when the model cannot see them; None when it can, or there are none.

    With a tool to have them looked at, among these, it can go on.
    """
    if not state.shows_images or VisionInspectTool.tool_name in tools or not is_blind(llm):
        return None
    text = (
        f"The model {llm.model} cannot see images, so I cannot answer this. Describe in words what they show, or choose"
        " a model that takes images."
    )
    message = Message(role="assistant", content=[TextContent(text=text)])
    return MessageEvent(source="agent", llm_message=message, wait_for_response=True, seen=state.last_event_id)


def refinement(critic: CriticBase | None, state: ConversationState) -> MessageEvent | None:
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


def rephrase(error: LLMContentPolicyError, state: ConversationState) -> MessageEvent:
    """What an agent is told whose request was refused. It counts as an empty reply, so it is said a few times only.

    Raises:
        LLMContentPolicyError: it was said often enough.
    """
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


def answers_to_invalid_calls(state: ConversationState) -> list[AnyEvent]:
    """For calls that could not be validated, and whose errors a crash or a full disk has kept out of the log."""
    return [
        AgentErrorEvent(
            cause=event.id,
            error="The call could not be validated; check its name and arguments and try again.",
            tool_name=event.tool_name,
            tool_call_id=event.tool_call_id,
            classification=ErrorClassification.AGENT_ACTION,
        )
        for event in state.unanswered.values()
        if event.action is None
    ]
