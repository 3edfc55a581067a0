"""Slow work that is done once, by one thread, for all who wait for it: the import of a library."""

from __future__ import annotations

import asyncio
import concurrent
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

_T = TypeVar("_T")


class OnceInThread(Generic[_T]):
    """Work that one thread does for all who wait, of any loop; after a failure the next who asks begins anew."""

    def __init__(self, work: Callable[[], _T], name: str) -> None:
        self._work = work
        self._name = name
        self._lock = threading.Lock()
        self._running: concurrent.futures.Future[_T] | None = None
        self._result: _T | None = None

    async def outcome(self) -> _T:
        """Its result; who is cancelled waits no more, and the work goes on."""
        with self._lock:
            if self._result is not None:
                return self._result
            if self._running is None:
                self._running = concurrent.futures.Future()
                threading.Thread(target=self._run, args=(self._running,), name=self._name, daemon=True).start()
            waiting = asyncio.wrap_future(self._running)
        # A failure for which nobody waits any more is nobody's.
        waiting.add_done_callback(lambda done: None if done.cancelled() else done.exception())
        return await asyncio.shield(waiting)

    def _run(self, running: concurrent.futures.Future[_T]) -> None:
        result = None
        try:
            result = self._work()
        except BaseException as error:  # noqa: BLE001 (handed to whoever waits)
            failure = error
        with self._lock:
            self._result = result
            self._running = None  # it knows the loops of those who waited
        if result is not None:
            running.set_result(result)
        else:
            running.set_exception(failure)
