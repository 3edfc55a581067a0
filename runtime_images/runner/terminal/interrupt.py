"""Stopping a command: asked, then terminated, then killed, with everything it started, in under a tenth of a second."""

from __future__ import annotations

import signal
import time
from typing import Callable, List

from ..core import processes
from ..core.loop import Loop, Timer
from .shell import Shell

TERMINATE_AFTER = 0.025
KILL_AFTER = 0.045
GIVE_UP_SHELL_AFTER = 0.07
GIVE_UP_SLOW_SHELL_AFTER = 0.4
_AGAIN = 0.004
_INTERRUPT_AGAIN = 0.02
INTERRUPT_KEY = b"\x03"
_YOUNG_SECONDS = 0.1
_OF_THE_SHELL = 8
"""The shell itself is asked less often: it may do with each what it likes."""
_REACTION_SECONDS = 0.015


class TypedInterrupt:
    """The interrupt key, typed when somebody hears it, and again where nobody can have heard it.

    A shell about to begin a command does not hear it, nor does a program that is just being started or ending.
    ``start_ticks`` is when the command was, in clock ticks.
    """

    def __init__(self, loop: Loop, shell: Shell, start_ticks: int, is_over: Callable[[], bool]) -> None:
        self._loop = loop
        self._shell = shell
        self._start_ticks = start_ticks
        self._is_over = is_over
        self._tries = 100

    def press(self) -> None:
        self._aim(time.monotonic() + _REACTION_SECONDS)

    def _aim(self, patience_ends: float) -> None:
        if self._is_over():
            return
        group, shell = self._shell.foreground(), self._shell.pid
        is_young = processes.seconds_since(self._start_ticks) < _YOUNG_SECONDS
        is_heard = not self._shell.is_reading and group not in (0, shell) and not processes.is_copy(group, shell)
        if not is_heard and (is_young or (group == shell and time.monotonic() < patience_ends)):
            self._loop.call_later(0.002, lambda: self._aim(patience_ends))
            return
        group_start = processes.started(group)
        is_brief = group == shell or group_start is None or processes.seconds_since(group_start) < _YOUNG_SECONDS
        self._shell.type(INTERRUPT_KEY)
        self._tries -= _OF_THE_SHELL if group == shell else 1
        if is_brief and self._tries > 0:
            self._loop.call_later(_REACTION_SECONDS, lambda: self._look(group, is_young or group == shell))

    def _look(self, group: int, is_doubtful: bool) -> None:
        if is_doubtful or self._shell.foreground() != group:
            self.press()


class Interruption:
    """One running command's end.

    SIGINT goes out at once, to the foreground group as if typed and to the shell, which gives up the rest of the
    command. What remains gets SIGTERM, then SIGKILL. A shell that does not come back is killed too: soon when it goes
    on regardless, later when it may only be slow. ``done`` is called once, when the processes are gone and the shell
    has reported or is dead.
    """

    def __init__(self, loop: Loop, shell: Shell, start_ticks: int, done: Callable[[], None]) -> None:
        self._loop = loop
        self._scope = shell.scope()
        self._shell = shell
        self._pid = shell.pid
        self._start_ticks = start_ticks
        self._done = done
        self._interrupted_at = 0.0
        self._interrupted_ticks = processes.now_in_ticks()
        self._used = processes.ticks_used(shell.pid)
        self._timers: List[Timer] = []
        self._shell_back = False
        self._killing = False
        self._waited = 0.0
        self._waited_for_shell = GIVE_UP_SHELL_AFTER
        self._finished = False

    def start(self) -> None:
        self._shell.gives_up()
        self._begin(time.monotonic() + 0.03)

    def _begin(self, patience_ends: float) -> None:
        if self._finished:  # the command had not begun
            return
        if self._shell.is_reading:  # what it has not read of the command yet would be run without what it has
            if time.monotonic() < patience_ends:
                self._plan(_AGAIN, lambda: self._begin(patience_ends))
                return
            processes.signal_process(self._pid, signal.SIGKILL)
        foreground = self._shell.foreground()
        if foreground != self._pid:
            processes.signal_group(foreground, signal.SIGINT)
        self._interrupt_shell()
        self._plan(TERMINATE_AFTER, self._terminate)
        self._plan(KILL_AFTER, self._kill)
        self._plan(GIVE_UP_SHELL_AFTER, self._give_up_shell)

    def shell_is_back(self) -> None:
        self._shell_back = True
        self._check()

    def abandon(self) -> None:
        """Stop watching, without a call of ``done``: something stronger has killed the processes."""
        self._finished = True
        for timer in self._timers:
            timer.cancel()

    def _plan(self, seconds: float, callback: Callable[[], None]) -> None:
        self._timers.append(self._loop.call_later(seconds, callback))

    def _remaining(self) -> List[processes.Process]:
        return processes.of_command(self._scope, self._start_ticks)

    def _check(self) -> None:
        """Once the shell is back, background processes of the command need not be asked for longer."""
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
        if self._waited > 1.0:
            self._finish()
        else:
            self._plan(_AGAIN, self._kill)

    def _give_up_shell(self) -> None:
        if self._shell_back:
            return
        self._waited_for_shell += _INTERRUPT_AGAIN
        if self._goes_on() or self._waited_for_shell > GIVE_UP_SLOW_SHELL_AFTER:
            processes.signal_process(self._pid, signal.SIGKILL)
        else:
            self._plan(_INTERRUPT_AGAIN, self._give_up_shell)

    def _goes_on(self) -> bool:
        return (
            processes.ignores(self._pid, signal.SIGINT)
            or processes.ticks_used(self._pid) - self._used >= 3
            or any(process.started > self._interrupted_ticks + 1 for process in self._remaining())
        )

    def _interrupt_shell(self) -> None:
        now = time.monotonic()
        if not self._shell_back and now - self._interrupted_at >= _INTERRUPT_AGAIN:
            self._interrupted_at = now  # not more often: a shell that is coming back needs a moment for its report
            processes.signal_process(self._pid, signal.SIGINT)
            self._shell.disturbed()

    def _signal_all(self, remaining: List[processes.Process], number: int) -> None:
        processes.send(remaining, number, self._pid)
        if number != signal.SIGKILL:
            processes.send(remaining, signal.SIGCONT, self._pid)

    def _finish(self) -> None:
        if not self._finished:
            self.abandon()
            self._done()
