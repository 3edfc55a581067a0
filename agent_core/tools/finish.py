"""The finish tool: the agent says that it is done."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from agent_core.events.schema import Action, Observation
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.registry import register_tool
from agent_core.tools.spec import ToolAnnotations, ToolContext


class FinishAction(Action):
    """The last word on a task."""

    message: str = Field(description="What was done and what came of it, for the user.")


class FinishObservation(Observation):
    """The acknowledgement; its content is the message."""


async def execute(action: FinishAction, conversation: ToolContext | None = None) -> FinishObservation:
    """Echo the message; the controller ends the run when it sees this result."""
    return FinishObservation.from_text(action.message)


class FinishTool(ToolDefinition[FinishAction, FinishObservation]):
    """The `finish` tool."""

    tool_name: ClassVar[str] = "finish"
    function = staticmethod(execute)
    resources: ClassVar[tuple[str, ...] | None] = ()
    description: str = "Say that the task is done, or that it cannot be done and why. Call it alone and last."
    annotations: ToolAnnotations = ToolAnnotations.read_only("Finish")


register_tool(FinishTool.tool_name, FinishTool)
