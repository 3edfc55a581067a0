"""Work that may block, done by a few threads so that the loop never waits for a disk."""

from __future__ import annotations

import threading
from collections import deque
from typing import Callable, Deque, Dict, Generic, List, Optional, TypeVar

from .loop import Loop

_THREADS = 4
_WAITING_LIMIT = 256

T = TypeVar("T")


class TooMuchWorkError(Exception):
    """Too much work is waiting already."""

    code = "busy"


class Job(Generic[T]):
    """One piece of work. ``done`` is called in the loop with the value, or ``failed`` with the exception."""

    def __init__(
        self, lane: str, work: Callable[[], T], done: Callable[[T], None], failed: Callable[[Exception], None]
    ) -> None:
        self.lane = lane
        self._turns = [True]
        self._work = work
        self._done = done
        self._failed = failed

    def claim(self) -> bool:
        """Decide, once and for one thread only, what becomes of the job: True for the first who asks."""
        try:
            return self._turns.pop()
        except IndexError:
            return False

    def perform(self) -> Callable[[], None]:
        """Do the work, in whatever thread; return the call that tells its outcome."""
        try:
            value = self._work()
        except Exception as error:  # noqa: BLE001 - handed to the asker, whoever it is
            failure = error
            return lambda: self._failed(failure)
        return lambda: self._done(value)


class Workers:
    """A bounded pool. Jobs of one lane (one file) run one after the other, in the order of asking."""

    def __init__(self, loop: Loop, threads: int = _THREADS) -> None:
        self._loop = loop
        self._limit = threads
        self._threads: List[threading.Thread] = []
        self._lanes: Dict[str, Deque[Job[object]]] = {}
        self._ready: Deque[Optional[Job[object]]] = deque()
        self._available = threading.Semaphore(0)
        self._given = 0
        self._waiting = 0

    def submit(self, job: Job[T]) -> None:
        """Take a job.

        Raises:
            BusyError: as many as the pool holds are waiting.
        """
        if self._waiting >= _WAITING_LIMIT:
            raise TooMuchWorkError(f"{_WAITING_LIMIT} file operations are waiting already")
        self._waiting += 1
        untyped: Job[object] = job  # type: ignore[assignment]  # the pool never looks at the value
        lane = self._lanes.get(job.lane)
        if lane is None:
            self._lanes[job.lane] = deque()
            self._give(untyped)
        else:
            lane.append(untyped)

    def cancel(self, job: Job[T]) -> bool:
        """Take back a job that has not begun; False when it is too late."""
        return job.claim()

    def close(self) -> None:
        """Let the threads end once they are idle; those that hang in a system call die with the process."""
        for _ in self._threads:
            self._ready.append(None)
            self._available.release()

    def _give(self, job: Job[object]) -> None:
        self._given += 1
        if self._given > len(self._threads) and len(self._threads) < self._limit:
            self._start_thread()
        if not self._threads:  # not one thread can be had: better late than never
            self._loop.call_soon(lambda: self._finished(job, job.perform() if job.claim() else None))
            return
        self._ready.append(job)
        self._available.release()

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._work, name=f"worker-{len(self._threads)}", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the limit on processes
            return
        self._threads.append(thread)

    def _work(self) -> None:
        while True:
            self._available.acquire()
            job = self._ready.popleft()
            if job is None:
                return
            tell = job.perform() if job.claim() else None
            self._loop.call_from_thread(_Finish(self._finished, job, tell))

    def _finished(self, job: Job[object], tell: Optional[Callable[[], None]]) -> None:
        self._waiting -= 1
        self._given -= 1
        lane = self._lanes[job.lane]
        if lane:
            self._give(lane.popleft())
        else:
            del self._lanes[job.lane]
        if tell is not None:
            tell()


class _Finish:
    """A call with its arguments bound: in the thread's own loop a lambda would see later values."""

    def __init__(
        self,
        finished: Callable[[Job[object], Optional[Callable[[], None]]], None],
        job: Job[object],
        tell: Optional[Callable[[], None]],
    ) -> None:
        self._finished = finished
        self._job = job
        self._tell = tell

    def __call__(self) -> None:
        self._finished(self._job, self._tell)
