"""Threads for calls that may never be answered: the end of the process waits for none of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class CallThreads:
    """Up to `most` threads, which take calls in the order in which they were submitted (by one thread).

    Those of a `ThreadPoolExecutor` are joined at the end of the interpreter, whatever they wait for.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._started = 0

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Have it done by a thread; a call that is cancelled before its turn is never made."""
        future: Future[T] = Future()
        self._calls.put((future, work))
        if self._started < self._most and not self._idle.acquire(blocking=False):
            self._started += 1
            threading.Thread(target=self._work, name=f"{self._name}-{self._started}", daemon=True).start()
        return future

    def close(self) -> None:
        """Cancel what waits for its turn; each thread ends with the call that it is at."""
        try:
            while (call := self._calls.get_nowait()) is not None:
                call[0].cancel()
        except Empty:
            pass
        for _ in range(self._started):
            self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            future, work = call
            if future.set_running_or_notify_cancel():
                try:
                    result = work()
                except BaseException as error:  # noqa: BLE001 - it is the caller's
                    future.set_exception(error)
                else:
                    future.set_result(result)
                    del result
            del future, work, call
            self._idle.release()
