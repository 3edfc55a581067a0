"""The newest results of the tools that remember them: their state, folded from the branch of the log that counts."""

from __future__ import annotations

from collections.abc import Mapping

from agent_core.events.branches import Branches, Pages, Rewind, read_branch
from agent_core.events.llm_events import ActionEvent, ObservationEvent
from agent_core.events.schema import Observation
from agent_core.events.serialization import AnyEvent
from agent_core.tools.definition import ToolDefinition


class LatestResults:
    """Of each tool that `remembers`, the newest result that is no error."""

    def __init__(self, tools: Mapping[str, ToolDefinition], log: Pages) -> None:
        self._remembering = frozenset(name for name, tool in tools.items() if tool.remembers)
        self._log = log
        self._branches = Branches()
        self._found: dict[str, ObservationEvent] = {}
        self._unstored: dict[str, tuple[int, Observation]] = {}
        self._is_stale = False

    def observe(self, event: AnyEvent) -> None:
        """Take the next event of the log into account."""
        counts = self._branches.fold(event)
        if isinstance(event, Rewind):
            self._found = {}
            self._unstored.clear()
            self._is_stale = True
        elif counts:
            self._take(self._found, event)

    def done(self, action: ActionEvent, observation: Observation) -> None:
        """Take a result into account that is still to be stored: the next call of the same answer builds on it."""
        if action.tool_name in self._remembering and not observation.is_error:
            self._unstored[action.tool_name] = action.id, observation

    def answered(self, event: AnyEvent) -> None:
        """Take a stored answer into account before `observe` comes to it."""
        if event.cause is None or self._branches.has(event.cause):
            self._take(self._found, event)
        if isinstance(event, ObservationEvent) and event.tool_name in self._unstored:
            action_id, _ = self._unstored[event.tool_name]
            if action_id == event.cause:
                del self._unstored[event.tool_name]

    async def of(self, tool_name: str) -> Observation | None:
        """The newest result of this tool, if there is one. After a rewind the log is read once more.

        Raises:
            EventStoreError: it cannot be read.
        """
        if tool_name not in self._remembering:
            return None
        while self._is_stale:
            rewinds, found = self._branches.rewinds, dict[str, ObservationEvent]()
            async for event in read_branch(self._log, self._branches):
                self._take(found, event)
            if rewinds == self._branches.rewinds:
                for event in self._found.values():  # what has come meanwhile
                    self._take(found, event)
                self._found, self._is_stale = found, False
        known = self._found.get(tool_name)
        if tool_name in self._unstored:
            return self._unstored[tool_name][1]
        return None if known is None else known.observation

    def _take(self, found: dict[str, ObservationEvent], event: AnyEvent) -> None:
        if not isinstance(event, ObservationEvent) or event.tool_name not in self._remembering:
            return
        before = found.get(event.tool_name)
        if not event.observation.is_error and (before is None or before.id < event.id):
            found[event.tool_name] = event
