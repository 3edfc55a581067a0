"""The tools of an agent: how they are configured, and made once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from pydantic import Field, PrivateAttr, field_validator

from agent_core.agent.shown_tools import shown_to_model
from agent_core.agent.tool_specs import ToolSpecs
from agent_core.agent.toolbox import (
    DEFAULT_TOOL_NAMES,
    builtin_tool_classes,
    checked_toolset,
    end_tools,
    skill_tools,
    toolset,
)
from agent_core.events.schema import Family
from agent_core.skills.context import AgentContext
from agent_core.skills.skill import Skill
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.invoke_skill import InvokeSkillTool
from agent_core.tools.registry import canonical_name
from agent_core.tools.spec import NamesRegex


class ToolUser(Family):
    """Configuration with tools in it, which are made when they are first needed.

    Attributes:
        tools: by name, from the registry.
        filter_tools_regex: of `tools` and those of servers, those whose names it matches from their beginning stay.
        include_default_tools: class names of built-in tools that are there in any case.
        tool_concurrency_limit: how many calls of one answer may run at the same time.
        agent_context: skills and texts; None for none.
    """

    tools: ToolSpecs = Field(default_factory=list)
    filter_tools_regex: NamesRegex = None
    include_default_tools: list[str] = Field(default_factory=lambda: list(DEFAULT_TOOL_NAMES))
    tool_concurrency_limit: int = Field(default=1, ge=1)
    agent_context: AgentContext | None = None

    _tools_map: dict[str, ToolDefinition] | None = PrivateAttr(default=None)
    _brought: dict[str, frozenset[str]] = PrivateAttr(default_factory=dict)

    @field_validator("include_default_tools")
    @classmethod
    def _are_builtin(cls, value: list[str]) -> list[str]:
        known = builtin_tool_classes()
        if unknown := [name for name in value if name not in known]:
            raise ValueError(f"{unknown} are not built in; give class names out of {sorted(known)}")
        return value

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with these fields changed; it makes its own tools."""
        copy = super().model_copy(update=update, deep=deep)
        copy._tools_map, copy._brought = None, {}
        return copy

    @property
    def tools_map(self) -> dict[str, ToolDefinition]:
        """The tools by name, in a dictionary of the caller's own.

        Raises:
            RuntimeError: they are not made yet; `initialize` makes them.
        """
        if self._tools_map is None:
            raise RuntimeError("the agent has no tools yet; a conversation makes them, or initialize()")
        return dict(self._tools_map)

    @property
    def is_initialized(self) -> bool:
        """Whether its tools are made."""
        return self._tools_map is not None

    def initialize(self, conv_state: Any = None) -> dict[str, ToolDefinition]:
        """Make the tools, once; `tools_map` has them from then on.

        Raises:
            ToolNotFoundError: a spec names no registered tool.
            ValueError: two tools have the same name.
        """
        if self._tools_map is None:
            self._tools_map = self.resolve_tools(conv_state)
        return self.tools_map

    def shown_tool(self, tool: ToolDefinition) -> dict[str, Any]:
        """The schema of a tool as this agent's model is given it."""
        return shown_to_model(tool)

    def close(self) -> None:
        """End what the executors of its tools hold; for an agent whose conversation has ended. May block."""
        end_tools((self._tools_map or {}).values())

    def add_runtime_tools(self, definitions: Sequence[ToolDefinition], *, client: str = "") -> None:
        """Add tools that are known at run time only; `filter_tools_regex` counts for them too. All or none are added.

        Those that the same `client` (a name; empty: none) has brought before are replaced.

        Raises:
            RuntimeError: the agent has no tools yet.
            ValueError: a name is taken.
        """
        before = self.tools_brought_by(client)
        others = {name: tool for name, tool in self.tools_map.items() if name not in before}
        self._tools_map = checked_toolset(others, definitions, self.filter_tools_regex)
        if client:
            self._brought = {**self._brought, client: frozenset(self._tools_map.keys() - others.keys())}

    def attach_skills(self, found: Sequence[Skill]) -> None:
        """Have the tool for reading skills serve these too, which the workspace has; it is added where it is needed.

        A tool of that name which was configured stays as it is.

        Raises:
            RuntimeError: the agent has no tools yet.
        """
        if not any(canonical_name(tool.name) == InvokeSkillTool.tool_name for tool in self.tools):
            context = (self.agent_context or AgentContext()).merged(project=found)
            self._tools_map = {**self.tools_map, **skill_tools(context)}

    def tools_brought_by(self, client: str) -> frozenset[str]:
        """The names of the tools that this client has added."""
        return self._brought.get(client, frozenset())

    def resolve_tools(self, conv_state: Any = None) -> dict[str, ToolDefinition]:
        """The tools of this agent by name: its own, filtered by `filter_tools_regex`, then the default ones.

        Raises:
            ToolNotFoundError: a spec names no registered tool.
            ValueError: two tools have the same name.
        """
        defaults, regex = self.include_default_tools, self.filter_tools_regex
        return toolset(self.tools, defaults, regex, conv_state, self.agent_context)
