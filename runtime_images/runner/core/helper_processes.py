"""Work that cannot be interrupted from inside, in a process of its own: it ends at a limit, or when cancelled."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any, Callable, Dict, List, Optional, Set

from . import processes
from .connection import Asker
from .loop import Loop, Timer
from .workers import TooMuchWorkError

_RESULT_LIMIT = 8 * 1024 * 1024
_PIPE_BYTES = 4096
"""For which every pipe has room."""


class SideProcess:
    """One of them: the runner's own program with a subcommand, which reads an order and prints a result, as JSON.

    Lines that it prints before the result are told to the asker at once.
    """

    def __init__(self, loop: Loop, name: str, order: Dict[str, Any], limit_seconds: float, overdue: str) -> None:
        """Start it; ``overdue`` is the ``error`` of the result when it takes longer than the limit.

        Raises:
            OSError: there can be no further process.
        """
        self._loop = loop
        self._name = name
        self._overdue_text = overdue
        self._output = bytearray()
        self._asker: Optional[Asker] = None
        self._ended: Callable[[], None] = lambda: None
        program = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        given = _holding(json.dumps(order).encode("ascii"))
        try:
            self._reader, writer = os.pipe()
            actions = [(os.POSIX_SPAWN_DUP2, writer, 1), (os.POSIX_SPAWN_DUP2, given, 0)]
            try:
                self._process = os.posix_spawn(
                    sys.executable,
                    [sys.executable, "-E", "-s", "-S", program, name],
                    os.environ,
                    file_actions=actions,
                    setpgroup=0,
                )
            except OSError:
                os.close(self._reader)
                raise
            finally:
                os.close(writer)
        finally:
            os.close(given)
        self._timer: Timer = loop.call_later(limit_seconds, self._overdue)

    def answer(self, asker: Asker, ended: Callable[[], None]) -> None:
        """Give the asker the result when it is there; ``ended`` is called once, before that."""
        self._asker, self._ended = asker, ended
        os.set_blocking(self._reader, False)
        self._loop.add_reader(self._reader, self._read)

    def cancel(self) -> bool:
        """Kill it; the asker is told. False when it is over already."""
        asker = self._end()
        if asker is not None:
            asker.fail("cancelled", f"the {self._name} was cancelled")
        return asker is not None

    def _overdue(self) -> None:
        asker = self._end()
        if asker is not None:
            asker.finish({"error": self._overdue_text, "files": []})

    def _read(self) -> None:
        try:
            data = os.read(self._reader, 1 << 16)
        except BlockingIOError:
            return
        self._output += data
        while data and b"\n" in self._output:  # the result has none
            line, _, rest = bytes(self._output).partition(b"\n")
            self._output[:] = rest
            if self._asker is not None:
                self._asker.live(line.decode("utf-8", "replace"))
        if data and len(self._output) <= _RESULT_LIMIT:
            return
        output = bytes(self._output)
        asker = self._end()
        if asker is None:
            return
        try:
            asker.finish(json.loads(output))
        except ValueError:
            asker.fail("internal", f"the {self._name} ended without a result; the runner's standard error says how")

    def _end(self) -> Optional[Asker]:
        """Let go of everything, and return who waits for the result; None when it has ended before."""
        asker, self._asker = self._asker, None
        if asker is not None:
            self._timer.cancel()
            self._loop.remove_reader(self._reader)
            os.close(self._reader)
            processes.signal_group(self._process, signal.SIGKILL)  # it has its own, with the programs that it uses
            self._ended()
        return asker


class SideProcesses:
    """Starts them, a few at a time."""

    def __init__(self, loop: Loop, name: str, at_once: int) -> None:
        self._loop = loop
        self._name = name
        self._at_once = at_once
        self._under_way: Set[SideProcess] = set()

    def start(self, order: Dict[str, Any], limit_seconds: float, overdue: str, asker: Asker) -> Callable[[], bool]:
        """Start one and have it answer; return what cancels it.

        Raises:
            BusyError: too many are under way, or there can be no further process.
        """
        if len(self._under_way) >= self._at_once:
            raise TooMuchWorkError(f"{self._at_once} of these are under way already")
        try:
            process = SideProcess(self._loop, self._name, order, limit_seconds, overdue)
        except OSError as error:
            raise TooMuchWorkError(f"no process can be started for the {self._name}: {error.strerror}") from error
        self._under_way.add(process)
        process.answer(asker, lambda: self._under_way.discard(process))
        return process.cancel

    def close(self) -> None:
        """Kill what is under way."""
        for process in list(self._under_way):
            process.cancel()


def _holding(data: bytes) -> int:
    """Return a descriptor from which these bytes can be read, however many they are."""
    if len(data) > _PIPE_BYTES:
        return _held_in_memory(data)
    reader, writer = os.pipe()
    os.write(writer, data)
    os.close(writer)
    return reader


def _held_in_memory(data: bytes) -> int:
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("order")
    else:
        import tempfile  # it loads a cryptographic library, which the runner's start should not wait for

        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    try:
        with open(os.dup(descriptor), "wb") as file:
            file.write(data)
        os.lseek(descriptor, 0, os.SEEK_SET)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


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
