"""The tools of a running conversation: its agent's own, and those that come and go while it runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping

from agent_core.tools.definition import ToolDefinition


class LiveTools(Mapping[str, ToolDefinition]):
    """Tools by name, as they are at the moment; whoever needs them to stay takes a copy.

    Attributes:
        wait: waits, within a bound, for tools that are on their way before the agent takes a step.
        wait_for_all: the same, until it is known of all of them whether they come.
    """

    def __init__(self, tools: Mapping[str, ToolDefinition]) -> None:
        self._tools = dict(tools)
        self.wait: Callable[[], Awaitable[None]] = _nothing_to_wait_for
        self.wait_for_all: Callable[[], Awaitable[None]] = _nothing_to_wait_for

    def replace(self, tools: Mapping[str, ToolDefinition]) -> None:
        """Have these instead, all at once."""
        self._tools = dict(tools)

    def __getitem__(self, name: str) -> ToolDefinition:
        return self._tools[name]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._tools))

    def __len__(self) -> int:
        return len(self._tools)


async def _nothing_to_wait_for() -> None:
    return


async def present_tools(tools: Mapping[str, ToolDefinition]) -> dict[str, ToolDefinition]:
    """The tools for a step, in a dictionary of the caller's own; those that are on their way are waited for."""
    if isinstance(tools, LiveTools):
        await tools.wait()
    return dict(tools)


async def tool_called(name: str, tools: Mapping[str, ToolDefinition]) -> ToolDefinition | None:
    """The tool of this name, which may be on its way still; None when there is none."""
    if name not in tools and isinstance(tools, LiveTools):
        await tools.wait_for_all()
    return tools.get(name)
