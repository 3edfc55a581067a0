"""Event loop of the runner: readiness of descriptors, timers, and calls from worker threads.

Importing asyncio costs more than the rest of the runner's start, and each hop through its streams more than a round
trip of a shell command may take.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import select
import signal
import sys
import time
from collections import deque
from typing import Callable, Deque, Dict, List, Optional

LoopCallback = Callable[[], None]
_READ = select.EPOLLIN
_WRITE = select.EPOLLOUT


class Timer:
    """A scheduled call; ``cancel`` may be called at any time, also after it has happened."""

    __slots__ = ("callback", "when")

    def __init__(self, when: float, callback: Optional[LoopCallback]) -> None:
        self.when = when
        self.callback = callback

    def cancel(self) -> None:
        self.callback = None

    def __lt__(self, other: Timer) -> bool:
        return self.when < other.when


class Plan:
    """At most one scheduled call."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._timer: Optional[Timer] = None

    def at(self, seconds: float, callback: LoopCallback) -> None:
        self.cancel()
        self._timer = self._loop.call_later(seconds, callback)

    @property
    def is_planned(self) -> bool:
        return self._timer is not None and self._timer.callback is not None

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Loop:
    """One thread's loop; a callback that raises is reported on standard error."""

    def __init__(self) -> None:
        self._poller = select.epoll(flags=select.EPOLL_CLOEXEC)
        self._callbacks: Dict[int, List[Optional[LoopCallback]]] = {}
        self._timers: List[Timer] = []
        self._ready: Deque[LoopCallback] = deque()
        self._from_threads: Deque[LoopCallback] = deque()
        self._signals: Dict[int, LoopCallback] = {}
        self._stopping = False
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(self._wake_writer, False)
        self.add_reader(self._wake_reader, self._woken)

    def add_reader(self, descriptor: int, callback: LoopCallback) -> None:
        """Call back whenever the descriptor can be read or its other end has gone; `OSError` for an ordinary file."""
        self._set(descriptor, 0, callback)

    def add_writer(self, descriptor: int, callback: LoopCallback) -> None:
        self._set(descriptor, 1, callback)

    def remove_reader(self, descriptor: int) -> None:
        self._set(descriptor, 0, None)

    def remove_writer(self, descriptor: int) -> None:
        self._set(descriptor, 1, None)

    def call_soon(self, callback: LoopCallback) -> None:
        """Call back in this turn of the loop, after the current callback."""
        self._ready.append(callback)

    def call_later(self, seconds: float, callback: LoopCallback) -> Timer:
        timer = Timer(time.monotonic() + seconds, callback)
        heapq.heappush(self._timers, timer)
        return timer

    def call_from_thread(self, callback: LoopCallback) -> None:
        """Call back in the loop's thread; the only method that other threads may use."""
        self._from_threads.append(callback)
        with contextlib.suppress(OSError):  # the pipe is full of wake-ups already, or the loop has ended
            os.write(self._wake_writer, b"\0")

    def on_signal(self, number: int, callback: LoopCallback) -> None:
        """Call back, as an ordinary event, after the process received the signal."""
        self._signals[number] = callback
        signal.set_wakeup_fd(self._wake_writer, warn_on_full_buffer=False)
        # The wake-up descriptor carries the news; a handler must exist for the signal to be caught at all.
        signal.signal(number, lambda _number, _frame: None)

    def stop(self) -> None:
        self._stopping = True

    def run(self) -> None:
        while not self._stopping:
            for descriptor, mask in self._poller.poll(self._timeout(), 64):
                if mask & ~_WRITE:  # the other end's end is told to whoever watches, for whatever
                    self._fire(descriptor, 0)
                if mask & ~_READ:
                    self._fire(descriptor, 1)
            now = time.monotonic() if self._timers else 0.0
            while self._timers and self._timers[0].when <= now:
                timer = heapq.heappop(self._timers)
                callback, timer.callback = timer.callback, None
                self._call(callback)
            while self._from_threads:
                self._call(self._from_threads.popleft())
            for _ in range(len(self._ready)):  # what is added meanwhile belongs to the next turn
                self._call(self._ready.popleft())

    def close(self) -> None:
        signal.set_wakeup_fd(-1)
        self._poller.close()
        os.close(self._wake_reader)
        os.close(self._wake_writer)

    def _set(self, descriptor: int, index: int, callback: Optional[LoopCallback]) -> None:
        pair = self._callbacks.setdefault(descriptor, [None, None])
        before = _events(pair)
        pair[index] = callback
        events = _events(pair)
        if not events:
            del self._callbacks[descriptor]
            if before:
                self._poller.unregister(descriptor)
        elif events == before:
            return
        elif before:
            self._poller.modify(descriptor, events)
        else:
            try:
                self._poller.register(descriptor, events)
            except OSError:  # one that cannot be waited for, such as an ordinary file
                del self._callbacks[descriptor]
                raise

    def _timeout(self) -> float:
        if self._ready or self._from_threads:
            return 0
        while self._timers and self._timers[0].callback is None:
            heapq.heappop(self._timers)
        if not self._timers:
            return -1
        return max(0.0, self._timers[0].when - time.monotonic())

    def _fire(self, descriptor: int, index: int) -> None:
        # Looked up only now: an earlier callback of this turn may have stopped the watching.
        pair = self._callbacks.get(descriptor)
        if pair is not None:
            self._call(pair[index])

    def _call(self, callback: Optional[LoopCallback]) -> None:
        try:
            if callback is not None:
                callback()
        except Exception:  # noqa: BLE001 - the boundary that keeps one request's fault from ending the runner
            sys.excepthook(*sys.exc_info())

    def _woken(self) -> None:
        try:
            numbers = os.read(self._wake_reader, 4096)
        except BlockingIOError:
            return
        for number in set(numbers):
            self._call(self._signals.get(number))


def read_ready(descriptor: int, size: int) -> Optional[bytes]:
    """Return what can be read without waiting: None when there is nothing yet, b"" at the end, or of what is broken."""
    try:
        return os.read(descriptor, size)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def _events(pair: List[Optional[LoopCallback]]) -> int:
    return (_READ if pair[0] is not None else 0) | (_WRITE if pair[1] is not None else 0)
