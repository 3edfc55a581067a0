"""Locks on what calls touch, so that those run together that cannot disturb one another (agent-core 2.5.4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from agent_core.errors import ToolError
from agent_core.tools.spec import DeclaredResources

LOCK_SECONDS: Final = {"file": 30.0, "terminal": 300.0, "ipython": 300.0, "browser": 300.0, "mcp": 300.0, "tool": 60.0}
OTHER_SECONDS: Final = 30.0


class ResourceLocks:
    """One lock for each resource that is used or waited for."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._users: dict[str, int] = {}

    @asynccontextmanager
    async def held(self, tool_name: str, resources: DeclaredResources) -> AsyncIterator[None]:
        """Hold what a call touches: its keys, or the whole tool where it does not say; nothing where it says nothing.

        All are taken in the order of their names, so no two calls wait for each other.

        Raises:
            ToolError: one was not free in time.
        """
        keys = sorted(set(resources.keys)) if resources.declared else [f"tool:{tool_name}"]
        async with AsyncExitStack() as stack:
            for key in keys:
                await stack.enter_async_context(self._one(key))
            yield

    @asynccontextmanager
    async def _one(self, key: str) -> AsyncIterator[None]:
        lock = self._locks.setdefault(key, asyncio.Lock())
        self._users[key] = self._users.get(key, 0) + 1
        limit = LOCK_SECONDS.get(key.partition(":")[0], OTHER_SECONDS)
        try:
            try:
                async with asyncio.timeout(limit):
                    await lock.acquire()
            except TimeoutError:
                text = f"{key} is in use by another call, and was not free within {limit:g} s; try again later"
                raise ToolError(text) from None
            try:
                yield
            finally:
                lock.release()
        finally:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key], self._locks[key]
