"""`SerialExecutor`: what is to be done to a conversation, one piece after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


class SerialExecutor:
    """Runs pieces of work one at a time, in order; each is done whole, even if whoever asked goes away."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: set[asyncio.Task[Any]] = set()
        self._lock = asyncio.Lock()

    @property
    def is_running(self) -> bool:
        return self._lock.locked()

    @property
    def has_work(self) -> bool:
        return bool(self._tasks)

    async def run(self, work: Coroutine[Any, Any, _T]) -> _T:
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
