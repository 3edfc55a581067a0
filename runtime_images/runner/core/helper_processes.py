"""Processes beside the runner: side processes, one order each, and long-lived drivers that speak JSON lines."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any, Callable, Dict, List, Optional, Set

from . import processes
from .connection import Request
from .loop import Loop, Plan, read_ready
from .workers import TooMuchWorkError

_PIPE_BYTES = 4096
"""Every pipe has room for so many."""
HelperMessage = Dict[str, Any]


class SideProcesses:
    """Runs the runner's own program with a subcommand, a few at a time: work that cannot be interrupted from inside.

    It reads an order and prints a result, as JSON; lines before the result go to the asker at once.
    """

    def __init__(self, loop: Loop, name: str, at_once: int) -> None:
        self._loop = loop
        self._name = name
        self._at_once = at_once
        self._running: Set[_SideProcess] = set()

    def start(self, request: Request, order: Dict[str, Any], limit_seconds: float, overdue: str) -> None:
        """Start one and have it answer; ``overdue`` is the ``error`` of a result that exceeds the time limit.

        Raises `TooMuchWorkError` when too many run or no process can be had.
        """
        if len(self._running) >= self._at_once:
            raise TooMuchWorkError(f"{self._at_once} of these are under way already")
        try:
            process = _SideProcess(self._loop, self._name, order, request, self._running.discard)
        except OSError as error:
            raise TooMuchWorkError(f"no process can be started for the {self._name}: {error.strerror}") from error
        self._running.add(process)
        process.limit.at(limit_seconds, lambda: process.finish({"error": overdue, "files": []}))
        request.cancel = process.cancel

    def close(self) -> None:
        for process in list(self._running):
            process.cancel()


class _SideProcess:
    def __init__(
        self,
        loop: Loop,
        name: str,
        order: Dict[str, Any],
        request: Request,
        ended: "Callable[[_SideProcess], None]",
    ) -> None:
        self._loop = loop
        self._name = name
        self._request: Optional[Request] = request
        self._ended = ended
        self._output = bytearray()
        self.limit = Plan(loop)
        program = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        source = _descriptor_holding(json.dumps(order).encode("ascii"))
        try:
            self._reader, writer = os.pipe()
            try:
                self._process = os.posix_spawn(
                    sys.executable,
                    [sys.executable, "-E", "-s", "-S", program, name],
                    os.environ,
                    file_actions=[(os.POSIX_SPAWN_DUP2, writer, 1), (os.POSIX_SPAWN_DUP2, source, 0)],
                    setpgroup=0,
                )
            except OSError:
                os.close(self._reader)
                raise
            finally:
                os.close(writer)
        finally:
            os.close(source)
        os.set_blocking(self._reader, False)
        loop.add_reader(self._reader, self._read)

    def finish(self, result: Dict[str, Any]) -> None:
        request = self._end()
        if request is not None:
            request.finish(result)

    def cancel(self) -> bool:
        return self._fail("cancelled", f"the {self._name} was cancelled")

    def _fail(self, code: str, message: str) -> bool:
        request = self._end()
        if request is not None:
            request.fail(code, message)
        return request is not None

    def _read(self) -> None:
        data = read_ready(self._reader, 1 << 16)
        if data is None:
            return
        self._output += data
        while data and b"\n" in self._output:  # the result has none
            line, _, rest = bytes(self._output).partition(b"\n")
            self._output[:] = rest
            if self._request is not None:
                self._request.live(line.decode("utf-8", "replace"))
        if data and len(self._output) <= 8 * 1024 * 1024:
            return
        try:
            self.finish(json.loads(self._output))
        except ValueError:
            self._fail("internal", f"the {self._name} ended without a result; the runner's standard error says how")

    def _end(self) -> Optional[Request]:
        """Release everything and return who waits for the result; None when it has ended before."""
        request, self._request = self._request, None
        if request is not None:
            self.limit.cancel()
            self._loop.remove_reader(self._reader)
            os.close(self._reader)
            processes.signal_group(self._process, signal.SIGKILL)  # it has its own, with the programs that it uses
            self._ended(self)
        return request


def _descriptor_holding(data: bytes) -> int:
    """A descriptor from which these bytes can be read; a pipe where they fit, so that they touch no disk."""
    if len(data) <= _PIPE_BYTES:
        reader, writer = os.pipe()
        os.write(writer, data)
        os.close(writer)
        return reader
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


class DriverProcess:
    """A program that owns what needs a library (a browser, a kernel): JSON lines on its standard input and output.

    It ends with its input. ``received`` gets its messages; ``ended`` is called once, when it ends by itself. Raises
    `OSError` where it cannot be started.
    """

    def __init__(
        self,
        loop: Loop,
        command: List[str],
        environment: Dict[str, str],
        log_path: str,
        received: Callable[[HelperMessage], None],
        ended: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._received = received
        self._ended = ended
        self._log_path = log_path
        self._buffer = bytearray()
        self._pending = bytearray()
        log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        its_input, self._input = os.pipe()
        self._output, its_output = os.pipe()
        try:
            self.pid = os.posix_spawn(
                command[0],
                command,
                environment,
                file_actions=[(os.POSIX_SPAWN_DUP2, end, n) for n, end in enumerate((its_input, its_output, log))],
                setpgroup=0,
                setsigdef=[signal.SIGPIPE, signal.SIGHUP],
            )
        except OSError:
            os.close(self._input)
            os.close(self._output)
            raise
        finally:
            for descriptor in (its_input, its_output, log):
                os.close(descriptor)
        os.set_blocking(self._input, False)
        os.set_blocking(self._output, False)
        loop.add_reader(self._output, self._read)

    def send(self, message: HelperMessage) -> None:
        if self._input < 0:
            return
        idle = not self._pending
        self._pending += json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"
        if idle:
            self._write()

    def kill(self) -> None:
        """End it at once, with everything that it started; neither callback is called any more."""
        if self.pid:
            pid, self.pid = self.pid, 0
            processes.kill_family(pid)
        for descriptor in (self._input, self._output):
            if descriptor >= 0:
                self._loop.remove_reader(descriptor)
                self._loop.remove_writer(descriptor)
                os.close(descriptor)
        self._input = self._output = -1

    def last_words(self) -> str:
        try:
            with open(self._log_path, "rb") as file:
                lines = file.read().decode("utf-8", "replace").strip().splitlines()
        except OSError:
            return ""
        return lines[-1][-300:] if lines else ""

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
        data = read_ready(self._output, 1024 * 1024)
        if data is None:
            return
        if not data or len(self._buffer) > 64 * 1024 * 1024:
            self.kill()
            self._ended()
            return
        self._buffer += data
        if b"\n" not in data:
            return
        *lines, rest = bytes(self._buffer).split(b"\n")
        self._buffer[:] = rest
        for line in lines:
            if self.pid:  # it may have been ended because of what it said before
                self._received(json.loads(line))
