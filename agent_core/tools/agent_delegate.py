"""Delegation in the manner of the first generation: an action that names an agent and its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from pydantic import Field

from agent_core.events.schema import Action, Observation
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.registry import register_tool
from agent_core.tools.spec import ToolAnnotations, ToolContext
from agent_core.tools.subagents import SubAgentError, subagents_of

BROWSING_AGENT: Final = "BrowsingAgent"
HEAD: Final = "The delegated agent has ended:"
TASK_PREFIX: Final = "TASK: "


class AgentDelegateAction(Action):
    """Have another agent do something; ``inputs["task"]`` says what."""

    agent: str = Field(description="Name of the agent's class, or of a kind of sub-agent.")
    inputs: dict[str, Any] = Field(default_factory=dict, description="What it is given; `task` is its task.")


class AgentDelegateObservation(Observation):
    """What came of it; `outputs` is empty where the agent failed."""

    outputs: dict[str, Any] = Field(default_factory=dict)


class BrowsingTask(Action):
    """What the model says to have something looked up in a browser."""

    task: str = Field(
        min_length=1, description="What the browsing agent is to do, and all that it has to know about it."
    )


async def execute(action: AgentDelegateAction, conversation: ToolContext | None = None) -> AgentDelegateObservation:
    """Carry it out; what the model can mend becomes an error result."""
    task = action.inputs.get("task")
    try:
        if not isinstance(task, str) or not task.strip():
            raise SubAgentError("inputs needs `task`: a text that says what the agent is to do")
        subagents, call = subagents_of(conversation)
        report = await subagents.ask(call, action.agent, f"{TASK_PREFIX}{task}")
    except SubAgentError as error:
        return AgentDelegateObservation.from_text(str(error), is_error=True)
    if report.problem:
        text = f"{HEAD}\n{action.agent} encountered an error: {report.text}"
        return AgentDelegateObservation.from_text(text, is_error=True)
    outputs = {"result": report.text}
    shown = ", ".join(f"{key}: {value}" for key, value in outputs.items())
    return AgentDelegateObservation.from_text(f"{HEAD}\n{action.agent} finishes task with {shown}", outputs=outputs)


class BrowsingDelegateTool(ToolDefinition[AgentDelegateAction, AgentDelegateObservation]):
    """The `delegate_to_browsing_agent` tool; its calls are `AgentDelegateAction`s for the browsing agent."""

    tool_name: ClassVar[str] = "delegate_to_browsing_agent"
    function = staticmethod(execute)
    resumable: ClassVar[bool] = True

    resources: ClassVar[tuple[str, ...] | None] = ()
    description: str = "Have the browsing agent look something up, or do something, on web pages."
    action_type: type[Action] = BrowsingTask
    annotations: ToolAnnotations = ToolAnnotations(title="Browsing agent")

    def action_from_arguments(self, arguments: Mapping[str, Any]) -> Action:
        asked = BrowsingTask.model_validate(dict(arguments))
        return AgentDelegateAction(agent=BROWSING_AGENT, inputs={"task": asked.task})


register_tool(BrowsingDelegateTool.tool_name, BrowsingDelegateTool)
