"""The think tool: a place for a thought, without any effect (agent-core 4.7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import Field

from agent_core.events.schema import Action, Observation
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.registry import register_tool
from agent_core.tools.spec import DeclaredResources, ToolAnnotations, ToolContext


class ThinkAction(Action):
    """A thought."""

    thought: str = Field(description="The thought to write down.")


class ThinkObservation(Observation):
    """The acknowledgement."""


async def execute(action: ThinkAction, conversation: ToolContext | None = None) -> ThinkObservation:
    """The thought is in the log already; there is nothing else to do."""
    return ThinkObservation.from_text("Your thought has been logged.")


class ThinkTool(ToolDefinition):
    """The `think` tool."""

    tool_name: ClassVar[str] = "think"

    def declared_resources(self, action: Action) -> DeclaredResources:
        return DeclaredResources(declared=True)

    @classmethod
    def create(cls, conv_state: Any = None, **params: Any) -> Sequence[ToolDefinition]:
        if params:
            raise TypeError(f"think takes no parameters, but was given {sorted(params)}")
        definition = cls(
            name=cls.tool_name,
            description="Write down a thought: weigh approaches, plan, or reason about a result. It changes nothing and"
            " finds out nothing.",
            action_type=ThinkAction,
            observation_type=ThinkObservation,
            annotations=ToolAnnotations(
                title="Think", readOnlyHint=True, destructiveHint=False, idempotentHint=True, openWorldHint=False
            ),
        )
        return [definition.set_executor(execute)]


register_tool(ThinkTool.tool_name, ThinkTool)
