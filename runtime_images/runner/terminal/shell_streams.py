"""Streams to and from a shell: its control line, its terminal, the pipes of its reports and state."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import termios
from typing import Callable, List, NamedTuple, Optional, Tuple

from ..core.loop import Loop, LoopCallback, Plan
from .pty import Inlet, Terminal
from .shell_state import StatePipe

_READ = 16 * 1024
_READS_IN_A_ROW = 64


class Report(NamedTuple):
    """How a command ended, as the shell reports it."""

    word: str
    status: int
    background: int
    directory: str
    path: str
    flags: str


class ReportReader:
    """Finds reports in what comes out of the pipe; anything that does not begin with an expected word is ignored."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._fields: List[str] = []
        self._expected: Tuple[str, ...] = ()

    def expect(self, *words: str) -> None:
        self._expected = tuple(word for word in words if word)

    def reset(self) -> None:
        self._buffer.clear()
        self._fields = []

    def feed(self, data: bytes) -> List[Report]:
        found: List[Report] = []
        self._buffer += data
        *fields, rest = self._buffer.split(b"\0")
        for field in fields:
            text = field.decode("utf-8", "surrogateescape")
            if self._fields:
                self._fields.append(text)
                if len(self._fields) == 6:
                    word, status, background, directory, path, flags = self._fields
                    self._fields = []
                    found.append(Report(word, _number(status), _number(background), directory, path, flags))
            elif text in self._expected:
                self._fields = [text]
        self._buffer = rest if len(rest) <= 1024 * 1024 else bytearray()
        return found


def _number(text: str) -> int:
    return int(text) if text.isdigit() and len(text) < 12 else -1


class ControlLine:
    """The pipe from which the shell reads its lines; ``gone`` is called once, when nobody can read them any more."""

    def __init__(self, loop: Loop, gone: LoopCallback) -> None:
        self._loop = loop
        self._gone = gone
        self.shell_end, self._writer = os.pipe()
        self._pending = bytearray()
        self._behind = 0
        self._is_cut = False
        os.set_blocking(self._writer, False)

    def started(self) -> None:
        """The shell has its end: from now on only it keeps the pipe alive."""
        os.close(self.shell_end)
        self.shell_end = -1
        # A write end never becomes readable; its watcher hears of the last reader's end.
        self._loop.add_reader(self._writer, self._hung_up)

    def send(self, data: bytes) -> None:
        idle = not self._pending
        self._pending += data
        if idle:
            self._drain()

    def send_command(self, command: bytes, after: bytes, *, apart: bool) -> None:
        """Queue a command's lines and those behind it; ``apart``, not before the shell has read the former."""
        self._behind = 0 if apart else len(after)
        self.send(command if apart else command + after)
        if apart:
            self._send_when_read(after)

    @property
    def is_being_read(self) -> bool:
        """True until the shell has read the whole command, which bash, reading ahead, may not have begun."""
        return self._is_cut or self._unread() > self._behind

    def is_read_by(self, pid: int) -> bool:
        """True when the process has this pipe as its standard input and has read all that was sent."""
        if self._writer < 0 or self._unread() > 0:
            return False
        try:
            return os.path.samestat(os.stat(f"/proc/{pid}/fd/0"), os.fstat(self._writer))
        except OSError:
            return False

    def close(self) -> None:
        self._pending.clear()
        for descriptor in (self.shell_end, self._writer):
            if descriptor >= 0:
                self._loop.remove_reader(descriptor)
                self._loop.remove_writer(descriptor)
                os.close(descriptor)
        self.shell_end = self._writer = -1

    def _send_when_read(self, after: bytes) -> None:
        if self._writer >= 0 and self._unread() == 0:
            self._behind = len(after)
            self.send(after)
        elif self._writer >= 0:
            self._loop.call_later(0.001, lambda: self._send_when_read(after))

    def _unread(self) -> int:
        waiting = bytearray(4)
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._writer, termios.FIONREAD, waiting)
        return len(self._pending) + int.from_bytes(waiting, sys.byteorder)

    def _drain(self) -> None:
        if self._writer < 0:
            return
        try:
            while self._pending:
                del self._pending[: os.write(self._writer, self._pending[:65536])]
        except BlockingIOError:
            self._loop.add_writer(self._writer, self._drain)
            return
        except OSError:
            self._is_cut = self.is_being_read
            self._pending.clear()
        self._loop.remove_writer(self._writer)

    def _hung_up(self) -> None:
        self._is_cut = self.is_being_read
        self._loop.remove_reader(self._writer)
        self._loop.remove_writer(self._writer)
        self._pending.clear()
        self._gone()


class Streams:
    """Reads terminal (``output``) and reports (``on_report``) in portions; the next shell and old jobs reuse it."""

    def __init__(self, loop: Loop, output: Callable[[bytes], None], on_report: Callable[[Report], None]) -> None:
        self.reader = ReportReader()
        self.state = StatePipe(loop)
        self._loop = loop
        self._output = output
        self._on_report = on_report
        self._terminal: Optional[Terminal] = None
        self._reports: Optional[Inlet] = None
        self._hold = Plan(loop)

    @property
    def is_open(self) -> bool:
        return self._terminal is not None

    @property
    def terminal(self) -> Terminal:
        if self._terminal is None:
            raise RuntimeError("the terminal is not open")
        return self._terminal

    @property
    def report_path(self) -> str:
        return self._reports.path if self._reports is not None else os.devnull

    def open(self) -> Terminal:
        """Open what is not open; OSError when there is no terminal or descriptor to be had."""
        if self._terminal is None:
            self._terminal = Terminal()
            self._loop.add_reader(self._terminal.master, self.read_terminal)
        if self._reports is None:
            self._reports = Inlet()
            self._loop.add_reader(self._reports.reader, self.read_reports)
        self.state.open()
        return self._terminal

    def close(self) -> None:
        self.state.close()
        self._hold.cancel()
        if self._terminal is not None:
            self._terminal.close(self._loop)
            self._terminal = None
        if self._reports is not None:
            self._reports.close(self._loop)
            self._reports = None

    def restore(self) -> None:
        self.terminal.restore()
        self.state.restore()
        if self._reports is not None:
            self._reports.restore()

    def hold(self) -> None:
        """Leave the terminal alone for a moment: waking for each line of a short command would cost more."""
        if self._terminal is not None and not self._hold.is_planned:
            self._loop.remove_reader(self._terminal.master)
            self._hold.at(0.002, self.watch)

    def watch(self) -> None:
        self._hold.cancel()
        if self._terminal is not None:
            self._loop.add_reader(self._terminal.master, self.read_terminal)

    def read_terminal(self) -> None:
        if self._terminal is None:
            return
        parts: List[bytes] = []  # the terminal hands out at most a page at a time: handled together they cost less
        for _ in range(_READS_IN_A_ROW):
            try:
                parts.append(os.read(self._terminal.master, _READ))
            except OSError:  # nothing there now
                break
        if parts:
            self._output(b"".join(parts))

    def read_reports(self) -> None:
        for _ in range(_READS_IN_A_ROW):
            if self._reports is None:
                return
            try:
                data = os.read(self._reports.reader, _READ)
            except OSError:
                return
            for item in self.reader.feed(data):
                self._on_report(item)
