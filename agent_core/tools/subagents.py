"""What tools that put sub-agents to work ask of their conversation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from agent_core.errors import ToolError
from agent_core.events.messages import Frozen
from agent_core.skills.agent_catalog import AgentCatalog, AgentKind
from agent_core.tools.registry import is_tool_usable
from agent_core.tools.spec import Tool

if TYPE_CHECKING:
    from agent_core.tools.spec import ToolContext

MAX_CHILDREN: Final = 5
"""Sub-agents that a conversation has at a time under ids of its own choice."""

MAX_RUNS_IN_ANSWER: Final = 5
"""Calls in one answer of the model that may put sub-agents to work."""

MAX_DEPTH: Final = 3
"""How deep sub-agents may be nested."""

DEFAULT_TYPE: Final = "general-purpose"


class SubAgentError(ToolError):
    """Sub-agents cannot do what was asked; the message says why and what to do, for the model."""


class SpawnedAgent(Frozen):
    """A sub-agent that waits for tasks: what kind it is, and the name of its conversation."""

    agent_type: str
    name: str


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What came of one task: the last word, perhaps empty or partial; and why it did not finish ("" when it did)."""

    result: str
    problem: str = ""

    @property
    def text(self) -> str:
        """Result, or problem with what there is of a result."""
        if not self.problem:
            return self.result or "(It finished without a word.)"
        return f"{self.problem}\nIts last word before that: {self.result}" if self.result else self.problem


@dataclass(frozen=True, slots=True)
class TaskRun:
    """One call of the `task` tool: the id under which the sub-agent can be asked again, its kind, what came of it."""

    task_id: str
    agent_type: str
    report: TaskReport


class SubAgents(Protocol):
    """The sub-agents of one conversation. A call that is repeated after a crash goes on where it was.

    A method that is cancelled stops the sub-agents that it has put to work.
    """

    async def spawn(self, call: ToolContext, ids: Sequence[str], types: Sequence[str]) -> dict[str, SpawnedAgent]:
        """Have a sub-agent for each id, all or none; an id that is in use gets a new one. `types` may be fewer.

        They exist for later calls once the call's result is in the log. Raises SubAgentError: they cannot be had.
        """
        ...

    async def delegate(self, call: ToolContext, tasks: Mapping[str, str]) -> list[TaskReport]:
        """Give each of these sub-agents its task, at the same time, and wait for all; reports in the order of `tasks`.

        Raises SubAgentError: an id is not known, or nothing may be delegated.
        """
        ...

    async def task(self, call: ToolContext, prompt: str, agent_type: str, *, resume: str | None) -> TaskRun:
        """Have one new sub-agent do something; or, with `resume`, the one of an earlier task, which remembers it.

        Raises SubAgentError: there is no such kind or task, or nothing may be delegated.
        """
        ...

    def stopped_by(self, action_id: int) -> str:
        """What became of the sub-agents that this call had put to work, where it was stopped; empty for any other."""
        ...

    async def ask(self, call: ToolContext, agent: str, task: str) -> TaskReport:
        """Have a new agent of this class, or a sub-agent of this kind, do something; its steps count as the caller's.

        Raises SubAgentError: there is no such agent, or nothing may be delegated.
        """
        ...


def subagents_of(conversation: ToolContext | None) -> tuple[SubAgents, ToolContext]:
    """The sub-agents of the conversation in which a call is made, and the call.

    Raises SubAgentError: there are none: the tool is used outside of a conversation.
    """
    found = conversation.subagents if conversation is not None else None
    if conversation is None or found is None:
        raise SubAgentError("there are no sub-agents here: this tool works inside a conversation only")
    return found, conversation


def usable_tools(kind: AgentKind) -> list[str] | None:
    """The tools of this kind; of a built-in one those that this process has. None for those of the asking agent."""
    names = kind.definition.tools
    if names is None or kind.definition.level != "built-in":
        return names
    return [name for name in names if is_tool_usable(name)]


def has_usable_tools(tools: Iterable[Tool]) -> bool:
    """Whether this process has any of these tools."""
    return any(is_tool_usable(tool.name) for tool in tools)


def is_kind_usable(kind: AgentKind) -> bool:
    """Whether it has anything to work with; a kind that was defined by somebody is taken at its word."""
    return kind.make is not None or usable_tools(kind) != []


def usable_kinds(catalog: AgentCatalog) -> dict[str, AgentKind]:
    """The kinds that can be asked for here, by name."""
    return {name: kind for name, kind in catalog.kinds().items() if is_kind_usable(kind)}


def list_of_kinds(catalog: AgentCatalog) -> str:
    """The kinds, a line each."""
    lines = [f"- {kind.definition.summary}" for kind in usable_kinds(catalog).values()]
    return "\n".join(["Kinds of sub-agents:", *lines])
