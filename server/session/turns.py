"""Work that is done one piece after the other, and whole, whoever waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


class Turns:
    """Runs pieces of work one at a time, in the order in which they were asked for.

    Each runs in a task of its own, which this object owns: whoever asked may go away, the work is still done whole.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: set[asyncio.Task[Any]] = set()
        self._lock = asyncio.Lock()

    @property
    def are_taken(self) -> bool:
        """Whether a piece of work is being done."""
        return self._lock.locked()

    @property
    def are_awaited(self) -> bool:
        """Whether any work is being done or waits for its turn."""
        return bool(self._tasks)

    async def take(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Do this when its turn comes; returns what it returns and raises what it raises."""
        task = asyncio.create_task(self._locked(work), name=self._name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    async def _locked(self, work: Coroutine[Any, Any, _T]) -> _T:
        try:
            async with self._lock:
                return await work
        finally:
            work.close()

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever asked raises it; nobody may be left
