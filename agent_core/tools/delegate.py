"""Tools that put sub-agents to work: `delegate` (several at once), `task` (one), `delegate_to_browsing_agent`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from pydantic import Field

from agent_core.events.schema import Action, Observation
from agent_core.skills.agent_catalog import AgentCatalog
from agent_core.tools.context import SpawnedAgent, SubAgentError, ToolContext
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.registry import built_in
from agent_core.tools.spec import ToolAnnotations
from agent_core.tools.subagents import DEFAULT_TYPE, MAX_CHILDREN, list_of_kinds, subagents_of

DelegateCommand = Literal["spawn", "delegate"]


class DelegateAction(Action):
    """Make sub-agents, or give them work."""

    command: DelegateCommand = Field(
        description="`spawn` makes sub-agents; `delegate` gives tasks to them and waits until all have ended."
    )
    ids: list[str] | None = Field(
        default=None, description="For `spawn`: a name of your choice for each sub-agent, such as `tests` or `docs`."
    )
    agent_types: list[str] | None = Field(
        default=None,
        description="For `spawn`: the kind of each sub-agent, in the order of `ids`; general-purpose where left out.",
    )
    tasks: dict[str, str] | None = Field(
        default=None,
        description="For `delegate`: the task of each sub-agent by its id. A sub-agent knows nothing of this"
        " conversation: say all that it needs.",
    )


class DelegateObservation(Observation):
    """What came of it: the sub-agents that were made, or the last word (or problem) of each, by id; which failed."""

    command: DelegateCommand = "delegate"
    spawned: dict[str, SpawnedAgent] = Field(default_factory=dict)
    outputs: dict[str, str] = Field(default_factory=dict)
    failed: list[str] = Field(default_factory=list)


async def _spawn(action: DelegateAction, conversation: ToolContext | None) -> DelegateObservation:
    ids, types = action.ids or [], action.agent_types or []
    if not ids:
        raise SubAgentError("spawn needs `ids`: at least one name for a sub-agent")
    subagents, call = subagents_of(conversation)
    spawned = await subagents.spawn(call, ids, types)
    names = ", ".join(f"{name} ({agent.agent_type})" for name, agent in spawned.items())
    return DelegateObservation.from_text(
        f"Spawned {len(spawned)} sub-agents: {names}. Give them work with the command delegate.",
        command="spawn",
        spawned=spawned,
    )


async def _delegate(action: DelegateAction, conversation: ToolContext | None) -> DelegateObservation:
    tasks = action.tasks or {}
    if not tasks:
        raise SubAgentError("delegate needs `tasks`: at least one task, by the id of the sub-agent that is to do it")
    subagents, call = subagents_of(conversation)
    reports = dict(zip(tasks, await subagents.delegate(call, tasks), strict=True))
    failed = [agent_id for agent_id, report in reports.items() if report.problem]
    head = f"Completed delegation of {len(tasks)} tasks{f' with {len(failed)} errors' if failed else ''}"
    lines = [
        f"{number}. Agent {agent_id}{' ERROR' if report.problem else ''}: {report.text}"
        for number, (agent_id, report) in enumerate(reports.items(), 1)
    ]
    return DelegateObservation.from_text(
        "\n".join([head, *lines]),
        outputs={agent_id: report.text for agent_id, report in reports.items()},
        failed=failed,
    )


_DELEGATE = """Have sub-agents work for you, at the same time, in the same workspace.

First `spawn` them under ids of your choice, at most {max_children} in all; a spawn with an id that is in use replaces
that sub-agent by a new one. Then `delegate` a task to each: the call returns when all have ended, with what each of
them said last. A sub-agent remembers its earlier tasks; it knows nothing else, so say all that it needs, and what it
is to report. It shares your files, and has shells of its own. Two of them must not change the same files at once."""


@built_in
class DelegateTool(ToolDefinition[DelegateAction, DelegateObservation]):
    """The `delegate` tool."""

    tool_name = "delegate"
    resumable = True
    resources = ()  # the conversation itself lets its calls wait for one another
    description: str = Field(
        default_factory=lambda: f"{_DELEGATE.format(max_children=MAX_CHILDREN)}\n\n{list_of_kinds(AgentCatalog())}"
    )
    annotations: ToolAnnotations = ToolAnnotations(title="Delegate")

    @staticmethod
    async def function(action: DelegateAction, conversation: ToolContext | None = None) -> DelegateObservation:
        run = _spawn if action.command == "spawn" else _delegate
        try:
            return await run(action, conversation)
        except SubAgentError as error:
            return DelegateObservation.from_text(str(error), is_error=True, command=action.command)


DelegatedTaskStatus = Literal["completed", "error"]


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
    status: DelegatedTaskStatus = "completed"
    result: str = ""


_TASK = """Have a sub-agent do a task in this workspace, and wait for its report.

Use it for work that takes many steps and of which only the outcome matters: the steps do not fill this conversation.
The result begins with a Task ID; with `resume` the same sub-agent can be asked further questions, or told to go on.
It shares your files, and has a shell of its own, which ends with the task."""


@built_in
class TaskTool(ToolDefinition[TaskAction, TaskObservation]):
    """The `task` tool."""

    tool_name = "task"
    resumable = True
    resources = ()
    description: str = Field(default_factory=lambda: f"{_TASK}\n\n{list_of_kinds(AgentCatalog())}")
    annotations: ToolAnnotations = ToolAnnotations(title="Task")

    @staticmethod
    async def function(action: TaskAction, conversation: ToolContext | None = None) -> TaskObservation:
        try:
            subagents, call = subagents_of(conversation)
            run = await subagents.task(call, action.prompt, action.subagent_type, resume=action.resume or None)
        except SubAgentError as error:
            return TaskObservation.from_text(str(error), is_error=True, subagent=action.subagent_type, status="error")
        status: DelegatedTaskStatus = "error" if run.report.problem else "completed"
        text = f"Task ID: {run.task_id}\nSubagent: {run.agent_type}\nStatus: {status}\n\n{run.report.text}"
        return TaskObservation.from_text(
            text,
            is_error=status == "error",
            task_id=run.task_id,
            subagent=run.agent_type,
            status=status,
            result=run.report.text,
        )


@built_in
class TaskToolSet(TaskTool):
    """The tools for tasks, which is one: `task`."""

    tool_name = "task_tool_set"

    @classmethod
    def create(cls, conv_state: Any = None, **params: Any) -> Sequence[ToolDefinition]:
        return TaskTool.create(conv_state, **params)


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


@built_in
class BrowsingDelegateTool(ToolDefinition[AgentDelegateAction, AgentDelegateObservation]):
    """The `delegate_to_browsing_agent` tool; its calls are `AgentDelegateAction`s for the browsing agent."""

    tool_name = "delegate_to_browsing_agent"
    resumable = True
    resources = ()
    description: str = "Have the browsing agent look something up, or do something, on web pages."
    action_type: type[Action] = BrowsingTask
    annotations: ToolAnnotations = ToolAnnotations(title="Browsing agent")

    def action_from_arguments(self, arguments: Mapping[str, Any]) -> Action:
        request = BrowsingTask.model_validate(dict(arguments))
        return AgentDelegateAction(agent=BROWSING_AGENT, inputs={"task": request.task})

    @staticmethod
    async def function(
        action: AgentDelegateAction, conversation: ToolContext | None = None
    ) -> AgentDelegateObservation:
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
        text = f"{HEAD}\n{action.agent} finishes task with result: {report.text}"
        return AgentDelegateObservation.from_text(text, outputs={"result": report.text})
