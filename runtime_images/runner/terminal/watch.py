"""Notices a shell that has done its command but not said so: something has cost it the line that reports."""

from __future__ import annotations

import os
from typing import Callable, Optional

from ..core.loop import Loop, Timer

FIRST_LOOK_SECONDS = 0.1
_SLOWEST_LOOK_SECONDS = 1.0
_LOOKS = 2
_REQUESTS = 3


class Watch:
    """Looks from time to time while a command runs; seldom, when nothing is wrong for long.

    A shell that reads our lines again, all of which it has, is not running the command any more: while it does, its
    standard input is the terminal.
    """

    def __init__(
        self, loop: Loop, is_idle: Callable[[], bool], ask_again: Callable[[], None], give_up: Callable[[], None]
    ) -> None:
        """``ask_again`` has the shell report once more; ``give_up`` ends one that does not, however often asked."""
        self._loop = loop
        self._is_idle = is_idle
        self._ask_again = ask_again
        self._give_up = give_up
        self._timer: Optional[Timer] = None
        self._after = FIRST_LOOK_SECONDS
        self._seen = self._asked = 0

    def begin(self) -> None:
        """A command begins."""
        self.end()
        self._after = FIRST_LOOK_SECONDS
        self._seen = self._asked = 0
        self._timer = self._loop.call_later(self._after, self._look)

    def end(self) -> None:
        """It has ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def hurry(self) -> None:
        """Something was typed that may have cost the shell a line."""
        if self._timer is not None:
            self.begin()

    def _look(self) -> None:
        idle = self._is_idle()
        self._seen = self._seen + 1 if idle else 0
        self._after = FIRST_LOOK_SECONDS if idle else min(self._after * 2, _SLOWEST_LOOK_SECONDS)
        self._timer = self._loop.call_later(self._after, self._look)
        if self._seen < _LOOKS:
            return
        self._seen = 0
        self._asked += 1
        if self._asked <= _REQUESTS:
            self._ask_again()
        else:
            self._give_up()


def same_file(pid: int, descriptor: int, ours: int) -> bool:
    """True when that descriptor of the process and ours are the same pipe."""
    try:
        return os.path.samestat(os.stat(f"/proc/{pid}/fd/{descriptor}"), os.fstat(ours))
    except OSError:
        return False
