"""Limits and kinds of sub-agents, for the tools that put them to work."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from agent_core.skills.agent_catalog import AgentCatalog, AgentKind
from agent_core.tools.context import SubAgentError, SubAgents, ToolContext
from agent_core.tools.registry import is_tool_usable
from agent_core.tools.spec import Tool

MAX_CHILDREN: Final = 5
"""Sub-agents that a conversation has at a time under ids of its own choice."""

MAX_RUNS_IN_ANSWER: Final = 5
"""Calls in one answer of the model that may put sub-agents to work."""

MAX_DEPTH: Final = 3
"""How deep sub-agents may be nested."""

DEFAULT_TYPE: Final = "general-purpose"


def subagents_of(conversation: ToolContext | None) -> tuple[SubAgents, ToolContext]:
    """The sub-agents of the conversation in which a call is made, and the call; `SubAgentError` outside of one."""
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
