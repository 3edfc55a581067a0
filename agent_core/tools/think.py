"""The think tool: a place for a thought, without any effect."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from agent_core.events.schema import Action, Observation
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.registry import register_tool
from agent_core.tools.spec import ToolAnnotations, ToolContext


class ThinkAction(Action):
    """A thought."""

    thought: str = Field(description="The thought to write down.")


class ThinkObservation(Observation):
    """The acknowledgement."""


async def execute(action: ThinkAction, conversation: ToolContext | None = None) -> ThinkObservation:
    """The thought is in the log already; there is nothing else to do."""
    return ThinkObservation.from_text("Your thought has been logged.")


class ThinkTool(ToolDefinition[ThinkAction, ThinkObservation]):
    """The `think` tool."""

    tool_name: ClassVar[str] = "think"
    function = staticmethod(execute)
    resources: ClassVar[tuple[str, ...] | None] = ()
    description: str = (
        "Write down a thought: weigh approaches, plan, or reason about a result. It changes nothing and finds out"
        " nothing."
    )
    annotations: ToolAnnotations = ToolAnnotations.read_only("Think")


register_tool(ThinkTool.tool_name, ThinkTool)
