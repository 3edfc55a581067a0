"""The tool with which an agent asks for its history to be condensed."""

from __future__ import annotations

from typing import ClassVar

from agent_core.events.schema import Action, Observation
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.registry import register_tool
from agent_core.tools.spec import ToolAnnotations, ToolContext


class CondensationRequestAction(Action):
    """The wish; there is nothing to say about it."""


class CondensationRequestObservation(Observation):
    """The acknowledgement."""


async def execute(
    action: CondensationRequestAction, conversation: ToolContext | None = None
) -> CondensationRequestObservation:
    """Put the request into the log, where the agent's condenser finds it before the next step."""
    if conversation is None:
        raise ValueError("there is no conversation whose history could be condensed")
    await conversation.request_condensation()
    return CondensationRequestObservation.from_text(
        "The older part of the history is summed up before your next step, if this agent has a condenser."
    )


class CondensationRequestTool(ToolDefinition[CondensationRequestAction, CondensationRequestObservation]):
    """The `request_condensation` tool."""

    tool_name: ClassVar[str] = "request_condensation"
    function = staticmethod(execute)
    resources: ClassVar[tuple[str, ...] | None] = ()
    description: str = (
        "Ask for the history of this conversation to be condensed, when it has grown so long that you lose the thread."
        " What matters should stand in your latest messages."
    )
    annotations: ToolAnnotations = ToolAnnotations.read_only("Condense")


register_tool(CondensationRequestTool.tool_name, CondensationRequestTool)
