"""The delegate tool: sub-agents under ids of the model's choice, which work in parallel."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from agent_core.events.schema import Action, Observation
from agent_core.skills.agent_catalog import AgentCatalog
from agent_core.tools.agent_types import list_of_kinds
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.registry import register_tool
from agent_core.tools.spec import ToolAnnotations, ToolContext
from agent_core.tools.subagents import MAX_CHILDREN, SpawnedAgent, SubAgentError, subagents_of

Command = Literal["spawn", "delegate"]


class DelegateAction(Action):
    """Make sub-agents, or give them work."""

    command: Command = Field(
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
    """What came of it.

    Attributes:
        command: as in the action.
        spawned: the sub-agents that were made, by id.
        outputs: the last word of each sub-agent that finished, or its problem, by id.
        failed: the ids of those that did not finish.
    """

    command: Command = "delegate"
    spawned: dict[str, SpawnedAgent] = Field(default_factory=dict)
    outputs: dict[str, str] = Field(default_factory=dict)
    failed: list[str] = Field(default_factory=list)


async def execute(action: DelegateAction, conversation: ToolContext | None = None) -> DelegateObservation:
    """Carry out one call; what the model can mend becomes an error result."""
    try:
        run = _spawn if action.command == "spawn" else _delegate
        return await run(action, conversation)
    except SubAgentError as error:
        return DelegateObservation.from_text(str(error), is_error=True, command=action.command)


async def _spawn(action: DelegateAction, conversation: ToolContext | None) -> DelegateObservation:
    ids, types = action.ids or [], action.agent_types or []
    if not ids:
        raise SubAgentError("spawn needs `ids`: at least one name for a sub-agent")
    subagents, call = subagents_of(conversation)
    spawned = await subagents.spawn(call, ids, types)
    made = ", ".join(f"{name} ({agent.agent_type})" for name, agent in spawned.items())
    return DelegateObservation.from_text(
        f"Spawned {len(spawned)} sub-agents: {made}. Give them work with the command delegate.",
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


_DESCRIPTION = """Have sub-agents work for you, at the same time, in the same workspace.

First `spawn` them under ids of your choice, at most {max_children} in all; a spawn with an id that is in use replaces
that sub-agent by a new one. Then `delegate` a task to each: the call returns when all have ended, with what each of
them said last. A sub-agent remembers its earlier tasks; it knows nothing else, so say all that it needs, and what it
is to report. It shares your files, and has shells of its own. Two of them must not change the same files at once."""


class DelegateTool(ToolDefinition[DelegateAction, DelegateObservation]):
    """The `delegate` tool."""

    tool_name: ClassVar[str] = "delegate"
    function = staticmethod(execute)
    resumable: ClassVar[bool] = True
    resources: ClassVar[tuple[str, ...] | None] = ()  # the conversation itself lets its calls wait for one another
    description: str = Field(
        default_factory=lambda: f"{_DESCRIPTION.format(max_children=MAX_CHILDREN)}\n\n{list_of_kinds(AgentCatalog())}"
    )
    annotations: ToolAnnotations = ToolAnnotations(title="Delegate")


register_tool(DelegateTool.tool_name, DelegateTool)
