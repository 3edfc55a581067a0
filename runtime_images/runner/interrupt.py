"""Stopping a command: asked first, then told, then killed, with everything it started, in under a tenth of a second."""

from __future__ import annotations

import signal
from typing import Callable, List

from . import processes
from .loop import Loop, Timer

TERMINATE_AFTER = 0.025
KILL_AFTER = 0.045
GIVE_UP_SHELL_AFTER = 0.07
GIVE_UP_AFTER = 1.0
_AGAIN = 0.004


class Interruption:
    """One running command's end.

    SIGINT goes out at once, to the foreground group as if it was typed and to the shell, so that it gives the rest of
    the command up. Who is still there is sent SIGTERM, then SIGKILL. When even the shell does not come back it is
    killed too. ``done`` is called once, when the processes are gone and the shell has reported or is dead.
    """

    def __init__(
        self, loop: Loop, scope: processes.Scope, foreground: int, begun: int, done: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._scope = scope
        self._shell = scope.shell
        self._foreground = foreground
        self._begun = begun
        self._done = done
        self._timers: List[Timer] = []
        self._shell_back = False
        self._killing = False
        self._waited = 0.0
        self._finished = False

    def start(self) -> None:
        """Send the first signal and plan the others."""
        if self._foreground != self._shell:
            processes.signal_group(self._foreground, signal.SIGINT)
        processes.signal_process(self._shell, signal.SIGINT)
        self._plan(TERMINATE_AFTER, self._terminate)
        self._plan(KILL_AFTER, self._kill)
        self._plan(GIVE_UP_SHELL_AFTER, self._give_up_shell)

    def shell_is_back(self) -> None:
        """Say that the shell has reported, or is gone."""
        self._shell_back = True
        self._check()

    def abandon(self) -> None:
        """Stop watching, since something stronger has killed the processes; ``done`` is not called."""
        self._finished = True
        for timer in self._timers:
            timer.cancel()

    def _plan(self, seconds: float, callback: Callable[[], None]) -> None:
        self._timers.append(self._loop.call_later(seconds, callback))

    def _remaining(self) -> List[processes.Process]:
        return processes.of_command(self._scope, self._begun)

    def _check(self) -> None:
        """When the shell is back, what is left (background processes of the command) need not be asked for longer."""
        remaining = self._remaining()
        if not remaining:
            self._finish()
        elif not self._killing:
            self._signal_all(remaining, signal.SIGTERM)

    def _terminate(self) -> None:
        self._signal_all(self._remaining(), signal.SIGTERM)
        self._interrupt_shell()

    def _kill(self) -> None:
        self._killing = True
        remaining: List[processes.Process] = []
        for _ in range(2):  # who forks faster than one look takes is caught by the next
            remaining = self._remaining()
            if not remaining:
                break
            self._signal_all(remaining, signal.SIGKILL)
        self._interrupt_shell()
        if not remaining and self._shell_back:
            self._finish()
            return
        self._waited += _AGAIN
        if self._waited > GIVE_UP_AFTER:
            self._finish()
        else:
            self._plan(_AGAIN, self._kill)

    def _give_up_shell(self) -> None:
        if not self._shell_back:
            processes.signal_process(self._shell, signal.SIGKILL)

    def _interrupt_shell(self) -> None:
        if not self._shell_back:  # a shell that is back may be writing its state down
            processes.signal_process(self._shell, signal.SIGINT)

    def _signal_all(self, remaining: List[processes.Process], number: int) -> None:
        processes.send(remaining, number, self._shell)
        if number != signal.SIGKILL:
            processes.send(remaining, signal.SIGCONT, self._shell)

    def _finish(self) -> None:
        if not self._finished:
            self._finished = True
            for timer in self._timers:
                timer.cancel()
            self._done()
