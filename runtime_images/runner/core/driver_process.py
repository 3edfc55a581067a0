"""The process of a program beside the runner that owns what needs a library: a browser, a kernel; and lines to and fro.

Such a program is told everything on its standard input, in lines of JSON, and answers likewise. It ends with its input.
"""

from __future__ import annotations

import json
import os
import signal
from typing import Any, Callable, Dict, List

from . import processes
from .loop import Loop

_LINE_LIMIT = 64 * 1024 * 1024
_CHUNK = 1024 * 1024
_LOG_SHOWN = 300
Message = Dict[str, Any]


class DriverProcess:
    """One run of the program. ``told`` gets its messages; ``gone`` is called once, when it has ended by itself."""

    def __init__(
        self,
        loop: Loop,
        command: List[str],
        environment: Dict[str, str],
        log_path: str,
        told: Callable[[Message], None],
        gone: Callable[[], None],
    ) -> None:
        """Starts it.

        Raises:
            OSError: it cannot be started.
        """
        self._loop = loop
        self._told = told
        self._gone = gone
        self._log_path = log_path
        self._buffer = bytearray()
        self._pending = bytearray()
        self._input, self._output, self.pid = _start(command, environment, log_path)
        loop.add_reader(self._output, self._read)

    def send(self, message: Message) -> None:
        """Queue a line for it."""
        if self._input < 0:
            return
        idle = not self._pending
        self._pending += json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"
        if idle:
            self._write()

    def kill(self) -> None:
        """End it at once, with everything that it started; nothing is told any more."""
        if self.pid:
            pid, self.pid = self.pid, 0
            processes.kill_family(pid)
        self._close()

    def last_words(self) -> str:
        """The end of what it wrote to its error stream."""
        try:
            with open(self._log_path, "rb") as file:
                lines = file.read().decode("utf-8", "replace").strip().splitlines()
        except OSError:
            return ""
        return lines[-1][-_LOG_SHOWN:] if lines else ""

    def _write(self) -> None:
        try:
            while self._pending:
                del self._pending[: os.write(self._input, self._pending[:65536])]
        except BlockingIOError:
            self._loop.add_writer(self._input, self._write)
            return
        except OSError:
            self._pending.clear()  # it has ended; its output's end tells
        self._loop.remove_writer(self._input)

    def _read(self) -> None:
        try:
            data = os.read(self._output, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or len(self._buffer) > _LINE_LIMIT:
            self.kill()
            self._gone()
            return
        self._buffer += data
        if b"\n" not in data:
            return
        *lines, rest = bytes(self._buffer).split(b"\n")
        self._buffer[:] = rest
        for line in lines:
            if self.pid:  # it may have been ended because of what it said before
                self._told(json.loads(line))

    def _close(self) -> None:
        for descriptor in (self._input, self._output):
            if descriptor >= 0:
                self._loop.remove_reader(descriptor)
                self._loop.remove_writer(descriptor)
                os.close(descriptor)
        self._input = self._output = -1


def _start(command: List[str], environment: Dict[str, str], log_path: str) -> "tuple[int, int, int]":
    """Start the program; returns what it reads from, what it writes to (our ends), and its process id."""
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    its_input, our_input = os.pipe()
    our_output, its_output = os.pipe()
    try:
        actions = [
            (os.POSIX_SPAWN_DUP2, its_input, 0),
            (os.POSIX_SPAWN_DUP2, its_output, 1),
            (os.POSIX_SPAWN_DUP2, log, 2),
        ]
        pid = os.posix_spawn(command[0], command, environment, file_actions=actions, setpgroup=0, setsigdef=_DEFAULTS)
    except OSError:
        os.close(our_input)
        os.close(our_output)
        raise
    finally:
        for descriptor in (its_input, its_output, log):
            os.close(descriptor)
    os.set_blocking(our_input, False)
    os.set_blocking(our_output, False)
    return our_input, our_output, pid


_DEFAULTS: List[int] = [signal.SIGPIPE, signal.SIGHUP]
