"""Blocking work, done by a few threads so that the loop never waits for a disk."""

from __future__ import annotations

import os
import threading
from collections import deque
from functools import partial
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, TypeVar

from .arguments import RequestError
from .connection import Request
from .loop import Loop

_WAITING_LIMIT = 256

T = TypeVar("T")


class TooMuchWorkError(RequestError):
    """Too much work is waiting already."""

    code = "busy"


class Reply(NamedTuple):
    """The result of a request, and the bytes that go with it."""

    result: Dict[str, Any]
    blob: Optional[bytes] = None


class _Job:
    """One piece of work; what `claim` returns does it, in any thread, and returns the call that reports its outcome."""

    def __init__(self, lane: str, finish: Callable[[], Callable[[], None]]) -> None:
        self.lane = lane
        self._turns = [finish]

    def claim(self) -> Optional[Callable[[], Callable[[], None]]]:
        """Decide, for one thread only, who does it: None for all but the first who asks."""
        try:
            return self._turns.pop()
        except IndexError:
            return None

    def run(self) -> Optional[Callable[[], None]]:
        finish = self.claim()
        return None if finish is None else finish()


class Workers:
    """A bounded pool; jobs of one lane (one file) run one after the other, in order."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._threads: List[threading.Thread] = []
        self._lanes: Dict[str, Deque[_Job]] = {}
        self._ready: Deque[Optional[_Job]] = deque()
        self._available = threading.Semaphore(0)
        self._active = 0
        self._waiting = 0

    def start(
        self,
        lane: str,
        work: Callable[[], T],
        done: Callable[[T], None] = lambda _value: None,
        failed: Callable[[Exception], None] = lambda _error: None,
    ) -> Callable[[], bool]:
        """Do the work, after what is queued in its lane, then call one of the two in the loop.

        Returns a function that withdraws work not yet begun and says whether it did. Raises `TooMuchWorkError` when the
        queue is full.
        """

        def finish() -> Callable[[], None]:
            try:
                value = work()
            except Exception as error:  # noqa: BLE001 - handed to the asker, whoever it is
                failure = error
                return lambda: failed(failure)
            return lambda: done(value)

        if self._waiting >= _WAITING_LIMIT:
            raise TooMuchWorkError(f"{_WAITING_LIMIT} file operations are waiting already")
        self._waiting += 1
        job = _Job(lane, finish)
        if lane in self._lanes:
            self._lanes[lane].append(job)
        else:
            self._lanes[lane] = deque()
            self._dispatch(job)
        return lambda: job.claim() is not None

    def serve(self, request: Request, path: str, work: Callable[[], Reply]) -> None:
        """Do this after earlier requests for the same file, and answer with its result."""

        def failed(error: Exception) -> None:
            if isinstance(error, RequestError):
                request.fail(error.code, str(error))
            else:
                request.fail("internal", f"{type(error).__name__}: {error}")

        def cancel() -> bool:
            if not take_back():
                return False
            request.fail("cancelled", "the request was cancelled before it was begun")
            return True

        take_back = self.start(os.path.realpath(path), work, lambda reply: request.finish(*reply), failed)
        request.cancel = cancel

    def close(self) -> None:
        """Let the threads end once idle; those that hang in a system call die with the process."""
        for _ in self._threads:
            self._ready.append(None)
            self._available.release()

    def _dispatch(self, job: _Job) -> None:
        self._active += 1
        if self._active > len(self._threads) and len(self._threads) < 4:
            thread = threading.Thread(target=self._work, name=f"worker-{len(self._threads)}", daemon=True)
            try:
                thread.start()
                self._threads.append(thread)
            except RuntimeError:  # the limit on processes
                pass
        if not self._threads:  # not one thread can be had: better late than never
            self._loop.call_soon(lambda: self._finished(job, job.run()))
            return
        self._ready.append(job)
        self._available.release()

    def _work(self) -> None:
        while True:
            self._available.acquire()
            job = self._ready.popleft()
            if job is None:
                return
            self._loop.call_from_thread(partial(self._finished, job, job.run()))

    def _finished(self, job: _Job, notify: Optional[Callable[[], None]]) -> None:
        self._waiting -= 1
        self._active -= 1
        lane = self._lanes[job.lane]
        if lane:
            self._dispatch(lane.popleft())
        else:
            del self._lanes[job.lane]
        if notify is not None:
            notify()
