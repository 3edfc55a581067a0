"""The tools that calls may use: those of the agent, and for its user those of a person at a terminal besides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from agent_core.events.llm_events import ActionEvent
from agent_core.tools.definition import ToolDefinition
from agent_core.tools.registry import resolve_tool
from agent_core.tools.spec import Tool

ALWAYS_THE_USERS: Final = ("terminal", "file_editor", "write_file")
"""Tools with which a user works in the sandbox, whatever the agent may do there."""


class CallableTools:
    """Finds the tool of a call."""

    def __init__(self, tools: Mapping[str, ToolDefinition]) -> None:
        """`tools` are the agent's, at any time."""
        self._tools = tools
        self._users: dict[str, ToolDefinition] = {}

    def of(self, action: ActionEvent) -> ToolDefinition | None:
        """The tool; None when there is none of its name for whoever calls it."""
        name = action.tool_name
        found = self._tools.get(name)
        if found is not None or action.source != "user" or name not in ALWAYS_THE_USERS:
            return found
        if name not in self._users:
            (self._users[name],) = resolve_tool(Tool(name=name))
        return self._users[name]
