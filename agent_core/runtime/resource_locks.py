"""Places in line for what calls touch: those run together that do not disturb one another."""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import Final, Self

from agent_core.errors import ToolError
from agent_core.tools.spec import DeclaredResources

LOCK_SECONDS: Final = {"file": 30.0, "terminal": 300.0, "ipython": 300.0, "browser": 300.0, "mcp": 300.0, "tool": 60.0}
OTHER_SECONDS: Final = 30.0


class ResourceLocks:
    """A line for each resource that is used or waited for; whoever is first in it may use it."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[Turn]] = {}

    def turn(self, tool_name: str, resources: DeclaredResources) -> Turn:
        """A place, taken at once, in the lines of all that a call touches: so calls keep the order in which they asked.

        That is its keys, or the whole tool where it does not say; nothing where it says nothing. To be entered, which
        waits until it is first everywhere, and left; no two ever wait for each other.
        """
        keys = sorted(set(resources.keys)) if resources.declared else [f"tool:{tool_name}"]
        turn = Turn(self._lines, keys)
        for key in keys:
            self._lines.setdefault(key, deque()).append(turn)
        return turn


class Turn:
    """One call's places; made by `ResourceLocks.turn`."""

    def __init__(self, lines: dict[str, deque[Turn]], keys: list[str]) -> None:
        self._lines = lines
        self._keys = keys
        self._moved = asyncio.Event()

    async def __aenter__(self) -> Self:
        """Wait until everything is free.

        Raises:
            ToolError: something was not free in time.
        """
        try:
            for key in self._keys:
                await self._be_first(key)
        except BaseException:
            self.leave()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.leave()

    def leave(self) -> None:
        """Give up all places; once is enough, more does no harm."""
        keys, self._keys = self._keys, []
        for key in keys:
            line = self._lines[key]
            line.remove(self)
            if line:
                line[0]._moved.set()
            else:
                del self._lines[key]

    async def _be_first(self, key: str) -> None:
        line = self._lines[key]
        if line[0] is self:
            return
        limit = LOCK_SECONDS.get(key.partition(":")[0], OTHER_SECONDS)
        try:
            async with asyncio.timeout(limit):
                while line[0] is not self:
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            text = f"{key} is in use by another call, and was not free within {limit:g} s; try again later"
            raise ToolError(text) from None
