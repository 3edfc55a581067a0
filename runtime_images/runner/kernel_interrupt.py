"""Stopping a cell: asked first, and what it has started is killed; a kernel that does not listen is killed too."""

from __future__ import annotations

import signal
from typing import Callable, List

from . import processes
from .loop import Loop, Timer

TERMINATE_AFTER = 0.025
KILL_AFTER = 0.045
ASK_AGAIN_AFTER = 1.0
GIVE_UP_AFTER = 1.7
GIVE_UP_BUSY_AFTER = 15.0
_LOOK_SECONDS = 0.05
_IDLE_LOOKS = 4
_DEAF_TICKS = 150


class KernelInterruption:
    """The end of one cell, in a kernel that goes on if it can.

    The kernel gets SIGINT, and again if it then waits for something else: a second one must not hit it while it tells
    of the first. The processes that the cell has started, and no others, get SIGINT, SIGTERM and SIGKILL.
    """

    def __init__(self, loop: Loop, scope: processes.Scope, begun: int, given_up: Callable[[], None]) -> None:
        """``begun`` is when the cell was, in clock ticks; ``given_up`` is called when the kernel has to be ended."""
        self._loop = loop
        self._scope = scope
        self._begun = begun
        self._given_up = given_up
        self._used = processes.ticks_used(scope.shell)
        self._idle_looks = 0
        self._timers: List[Timer] = []

    def start(self) -> None:
        """Send the first signal and plan the others."""
        processes.signal_process(self._scope.shell, signal.SIGINT)
        self._signal_started(signal.SIGINT)
        self._plan(TERMINATE_AFTER, lambda: self._signal_started(signal.SIGTERM))
        self._plan(KILL_AFTER, lambda: self._signal_started(signal.SIGKILL))
        self._plan(ASK_AGAIN_AFTER, self._ask_again)
        self._plan(GIVE_UP_AFTER, self._look)
        self._plan(GIVE_UP_BUSY_AFTER, self._given_up)

    def finish(self) -> None:
        """The kernel is back, or gone: nothing of the cell may be left."""
        for timer in self._timers:
            timer.cancel()
        for _ in range(2):  # who forks faster than one look takes is caught by the next
            self._signal_started(signal.SIGKILL)

    def _plan(self, seconds: float, callback: Callable[[], None]) -> None:
        self._timers.append(self._loop.call_later(seconds, callback))

    def _ask_again(self) -> None:
        if processes.waits(self._scope.shell):  # otherwise it may be telling of the first
            processes.signal_process(self._scope.shell, signal.SIGINT)

    def _look(self) -> None:
        """Give up a kernel that waits for something else, or has worked on; not one that gets no processor time."""
        kernel = self._scope.shell
        self._idle_looks = self._idle_looks + 1 if processes.waits(kernel) else 0
        if self._idle_looks >= _IDLE_LOOKS or processes.ticks_used(kernel) - self._used >= _DEAF_TICKS:
            self._given_up()
        else:
            self._plan(_LOOK_SECONDS, self._look)

    def _signal_started(self, number: int) -> None:
        started = processes.of_command(self._scope, self._begun)
        if started:
            processes.send(started, number, self._scope.shell)
            if number == signal.SIGTERM:
                processes.send(started, signal.SIGCONT, self._scope.shell)
