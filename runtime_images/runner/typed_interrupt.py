"""C-c, typed at a command so that somebody hears it."""

from __future__ import annotations

import time
from typing import Callable

from . import processes
from .loop import Loop
from .shell import Shell

KEY = b"\x03"
_YOUNG_SECONDS = 0.1
_TRIES = 100
_OF_THE_SHELL = 8
"""A shell that has heard it may also do with it what it likes, so it is asked less often."""
_LOOK_AGAIN = 0.002
_HEARD_WITHIN = 0.015


class TypedInterrupt:
    """One press of the key.

    A shell that is about to begin a command does not hear it, nor does a program that is just being started, or just
    ending in a loop of short ones; a person at a terminal presses again. So it is typed when there is somebody to hear
    it, and once more where nobody can have heard it. Whoever has heard it does with it what it likes.
    """

    def __init__(self, loop: Loop, shell: Shell, begun: int, is_over: Callable[[], bool]) -> None:
        """``begun`` is when the command was, in clock ticks; ``is_over``, whether it has ended."""
        self._loop = loop
        self._shell = shell
        self._begun = begun
        self._is_over = is_over
        self._tries = _TRIES

    def press(self) -> None:
        """Type it, now or as soon as it can be heard."""
        self._aim(time.monotonic() + _HEARD_WITHIN)

    def _aim(self, patience_ends: float) -> None:
        if self._is_over():
            return
        group, shell = self._shell.foreground(), self._shell.pid
        is_young = processes.seconds_since(self._begun) < _YOUNG_SECONDS
        is_heard = not self._shell.is_reading and group not in (0, shell) and not processes.is_copy(group, shell)
        if not is_heard and (is_young or (group == shell and time.monotonic() < patience_ends)):
            self._loop.call_later(_LOOK_AGAIN, lambda: self._aim(patience_ends))
            return
        began = processes.started(group)
        is_brief = group == shell or began is None or processes.seconds_since(began) < _YOUNG_SECONDS
        self._shell.type(KEY)
        self._tries -= _OF_THE_SHELL if group == shell else 1
        if is_brief and self._tries > 0:
            self._loop.call_later(_HEARD_WITHIN, lambda: self._look(group, is_young or group == shell))

    def _look(self, group: int, is_doubtful: bool) -> None:
        if is_doubtful or self._shell.foreground() != group:
            self.press()
