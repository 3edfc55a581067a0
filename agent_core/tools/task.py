"""The task tool: one sub-agent for one task, which can be asked again later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from agent_core.events.schema import Action, Observation
from agent_core.skills.agent_catalog import AgentCatalog
from agent_core.tools.agent_types import list_of_kinds
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.registry import register_tool
from agent_core.tools.spec import ToolAnnotations, ToolContext
from agent_core.tools.subagents import DEFAULT_TYPE, SubAgentError, subagents_of

TaskStatus = Literal["completed", "error"]


class TaskAction(Action):
    """One task for a sub-agent."""

    prompt: str = Field(
        min_length=1,
        description="What is to be done, and all that has to be known for it: a sub-agent does not know what was said"
        " here.",
    )
    description: str | None = Field(default=None, description="The task in three to five words, for a person to read.")
    subagent_type: str = Field(default=DEFAULT_TYPE, description="Which kind of sub-agent is to do it.")
    resume: str | None = Field(
        default=None,
        description="The Task ID of an earlier task: its sub-agent, which remembers it, goes on with this prompt.",
    )


class TaskObservation(Observation):
    """What came of a task; `task_id` is empty when it was not begun."""

    task_id: str = ""
    subagent: str = ""
    status: TaskStatus = "completed"
    result: str = ""


async def execute(action: TaskAction, conversation: ToolContext | None = None) -> TaskObservation:
    """Carry out one task; what the model can mend becomes an error result."""
    try:
        subagents, call = subagents_of(conversation)
        run = await subagents.task(call, action.prompt, action.subagent_type, resume=action.resume or None)
    except SubAgentError as error:
        return TaskObservation.from_text(str(error), is_error=True, subagent=action.subagent_type, status="error")
    status: TaskStatus = "error" if run.report.problem else "completed"
    text = f"Task ID: {run.task_id}\nSubagent: {run.agent_type}\nStatus: {status}\n\n{run.report.text}"
    return TaskObservation.from_text(
        text,
        is_error=status == "error",
        task_id=run.task_id,
        subagent=run.agent_type,
        status=status,
        result=run.report.text,
    )


_DESCRIPTION = """Have a sub-agent do a task in this workspace, and wait for its report.

Use it for work that takes many steps and of which only the outcome matters: the steps do not fill this conversation.
The result begins with a Task ID; with `resume` the same sub-agent can be asked further questions, or told to go on.
It shares your files, and has a shell of its own, which ends with the task."""


class TaskTool(ToolDefinition[TaskAction, TaskObservation]):
    """The `task` tool."""

    tool_name: ClassVar[str] = "task"
    function = staticmethod(execute)
    resumable: ClassVar[bool] = True
    resources: ClassVar[tuple[str, ...] | None] = ()
    description: str = Field(default_factory=lambda: f"{_DESCRIPTION}\n\n{list_of_kinds(AgentCatalog())}")
    annotations: ToolAnnotations = ToolAnnotations(title="Task")


class TaskToolSet(TaskTool):
    """The tools for tasks, which is one: `task`."""

    tool_name: ClassVar[str] = "task_tool_set"

    @classmethod
    def create(cls, conv_state: Any = None, **params: Any) -> Sequence[ToolDefinition]:
        return TaskTool.create(conv_state, **params)


register_tool(TaskTool.tool_name, TaskTool)
register_tool(TaskToolSet.tool_name, TaskToolSet)
