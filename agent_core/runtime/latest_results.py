"""The newest results of the tools that remember them: their state, folded from the log."""

from __future__ import annotations

from collections.abc import Mapping

from agent_core.events.llm_events import ObservationEvent
from agent_core.events.schema import Observation
from agent_core.events.serialization import AnyEvent
from agent_core.tools.definition import ToolDefinition


class LatestResults:
    """Of each tool that `remembers`, the newest result that is no error. Events may come twice and in any order."""

    def __init__(self, tools: Mapping[str, ToolDefinition]) -> None:
        self._tools = tools
        self._found: dict[str, ObservationEvent] = {}

    def observe(self, event: AnyEvent) -> None:
        """Take a stored event into account."""
        if not isinstance(event, ObservationEvent) or event.observation.is_error:
            return
        tool, before = self._tools.get(event.tool_name), self._found.get(event.tool_name)
        if tool is not None and tool.remembers and (before is None or before.id < event.id):
            self._found[event.tool_name] = event

    def of(self, tool_name: str) -> Observation | None:
        """The newest result of this tool, if there is one."""
        found = self._found.get(tool_name)
        return None if found is None else found.observation
