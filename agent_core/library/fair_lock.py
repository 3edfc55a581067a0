"""A lock that lets threads in as they came."""

from __future__ import annotations

import threading
from collections import deque


class FairLock:
    """For threads: whoever has it may take it again, and who waits for it gets it in the order of coming."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[_Turn] = deque()
        self._holder = 0
        self._depth = 0

    def acquire(self) -> None:
        """Wait for it, and have it."""
        me = threading.get_ident()
        with self._guard:
            if self._holder in (0, me):
                self._holder = me
                self._depth += 1
                return
            turn = _Turn(me)
            self._waiting.append(turn)
        try:
            turn.has_come.wait()
        except BaseException:  # Ctrl-C: it is not waited for any more, or was handed over a moment ago
            with self._guard:
                if turn in self._waiting:
                    self._waiting.remove(turn)
                else:
                    self._hand_over()
            raise

    def release(self) -> None:
        """Give it back once; the last time it goes to whoever has waited longest.

        Raises:
            RuntimeError: this thread does not have it.
        """
        with self._guard:
            if self._holder != threading.get_ident():
                raise RuntimeError("the lock is not this thread's, so it cannot be released here")
            self._depth -= 1
            if not self._depth:
                self._hand_over()

    @property
    def waiting(self) -> int:
        """How many threads wait for it."""
        return len(self._waiting)

    def _hand_over(self) -> None:
        turn = self._waiting.popleft() if self._waiting else None
        self._holder, self._depth = (turn.thread, 1) if turn is not None else (0, 0)
        if turn is not None:
            turn.has_come.set()


class _Turn:
    def __init__(self, thread: int) -> None:
        self.thread = thread
        self.has_come = threading.Event()
