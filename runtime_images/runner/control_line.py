"""The private pipe from which a shell reads the lines it runs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import termios
from typing import Dict, Tuple

from .loop import Callback, Loop
from .pty import Pipe, Terminal, spawn_shell
from .watch import same_file

_LOOK_SECONDS = 0.001


class ControlLine:
    """The runner's end of the pipe from which the shell reads the lines it runs."""

    def __init__(self, loop: Loop, gone: Callback) -> None:
        """``gone`` is called once, when nobody can read the lines any more."""
        self._loop = loop
        self._gone = gone
        self._pipe = Pipe()
        self._pending = bytearray()
        self._behind = 0
        self._is_cut = False
        os.set_blocking(self._pipe.writer, False)

    @property
    def shell_end(self) -> int:
        """The descriptor that becomes the shell's standard input."""
        return self._pipe.reader

    def started(self) -> None:
        """Say that the shell has its end: from now on only it keeps the pipe alive."""
        os.close(self._pipe.reader)
        self._pipe.reader = -1
        # A write end never becomes readable; its watcher hears of the last reader's end.
        self._loop.add_reader(self._pipe.writer, self._hung_up)

    def send(self, data: bytes) -> None:
        """Queue lines."""
        idle = not self._pending
        self._pending += data
        if idle:
            self._drain()

    def send_command(self, command: bytes, after: bytes, *, apart: bool) -> None:
        """Queue the lines of a command and those behind it; ``apart``, not before the shell has read the former."""
        self._behind = 0 if apart else len(after)
        self.send(command if apart else command + after)
        if apart:
            self._send_when_read(after)

    @property
    def is_being_read(self) -> bool:
        """True while the shell has not yet read the whole of the command, and for ever if it never will.

        False says less: bash reads a kilobyte ahead, and may have what it has not begun.
        """
        return self._is_cut or self.unread() > self._behind

    def _send_when_read(self, after: bytes) -> None:
        if self._pipe.writer >= 0 and self.unread() == 0:
            self._behind = len(after)
            self.send(after)
        elif self._pipe.writer >= 0:
            self._loop.call_later(_LOOK_SECONDS, lambda: self._send_when_read(after))

    def unread(self) -> int:
        """Return how many bytes of what was sent the shell has not read yet."""
        waiting = bytearray(4)
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._pipe.writer, termios.FIONREAD, waiting)
        return len(self._pending) + int.from_bytes(waiting, sys.byteorder)

    def is_read_by(self, pid: int) -> bool:
        """True when the process has this pipe as its standard input now, and has read all that was sent."""
        return self._pipe.writer >= 0 and self.unread() == 0 and same_file(pid, 0, self._pipe.writer)

    def close(self) -> None:
        """Let the shell read the end of its input."""
        self._pending.clear()
        self._pipe.close(self._loop)

    def _drain(self) -> None:
        writer = self._pipe.writer
        if writer < 0:
            return
        try:
            while self._pending:
                del self._pending[: os.write(writer, self._pending[:65536])]
        except BlockingIOError:
            self._loop.add_writer(writer, self._drain)
            return
        except OSError:
            self._is_cut = self.is_being_read
            self._pending.clear()
        self._loop.remove_writer(writer)

    def _hung_up(self) -> None:
        self._is_cut = self.is_being_read
        self._loop.remove_reader(self._pipe.writer)
        self._loop.remove_writer(self._pipe.writer)
        self._pending.clear()
        self._gone()


def start_shell(
    loop: Loop, path: str, arguments: Tuple[str, ...], terminal: Terminal, environment: Dict[str, str], gone: Callback
) -> Tuple[int, ControlLine]:
    """Start a shell on the terminal; return its process id and the line to it, whose loss ``gone`` tells of.

    Raises:
        OSError: it cannot be started.
    """
    control = ControlLine(loop, gone)
    try:
        pid = spawn_shell(path, arguments, terminal, control.shell_end, environment)
    except OSError:
        control.close()
        raise
    control.started()
    return pid, control
