"""Which kinds of sub-agents a model is told of by the tools that make them."""

from __future__ import annotations

from collections.abc import Iterable

from agent_core.skills.agent_catalog import AgentCatalog, AgentKind
from agent_core.tools.registry import is_tool_usable
from agent_core.tools.spec import Tool


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
