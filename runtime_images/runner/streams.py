"""What a shell is heard through: its terminal, and the pipe of its reports."""

from __future__ import annotations

import os
from typing import Callable, List, Optional

from . import driver
from .loop import Loop
from .pty import Pipe, Terminal

_READ = 64 * 1024
_READS_IN_A_ROW = 16


class Streams:
    """Reads both in bounded portions. They outlive a shell: the next one, and background jobs, use them on."""

    def __init__(self, loop: Loop, output: Callable[[bytes], None], said: Callable[[object], None]) -> None:
        """``output`` gets the terminal's bytes, ``said`` the shell's reports and snapshots."""
        self.reader = driver.ReportReader()
        self._loop = loop
        self._output = output
        self._said = said
        self._terminal: Optional[Terminal] = None
        self._reports: Optional[Pipe] = None

    @property
    def is_open(self) -> bool:
        """True between :meth:`open` and :meth:`close`."""
        return self._terminal is not None

    @property
    def terminal(self) -> Terminal:
        """The terminal; there is one while the streams are open."""
        if self._terminal is None:
            raise RuntimeError("the terminal is not open")
        return self._terminal

    @property
    def report_path(self) -> str:
        """The path under which the shell opens the pipe for a report."""
        writer = self._reports.writer if self._reports is not None else -1
        return f"/proc/{os.getpid()}/fd/{writer}"

    def open(self) -> Terminal:
        """Open what is not open; raises OSError when there is no terminal or no descriptor to be had."""
        if self._terminal is None:
            self._terminal = Terminal()
            self._loop.add_reader(self._terminal.master, self.read_terminal)
        if self._reports is None:
            self._reports = Pipe()
            os.set_blocking(self._reports.reader, False)
            self._loop.add_reader(self._reports.reader, self.read_reports)
        return self._terminal

    def close(self) -> None:
        """Close both."""
        if self._terminal is not None:
            self._terminal.close(self._loop)
            self._terminal = None
        if self._reports is not None:
            self._reports.close(self._loop)
            self._reports = None

    def read_terminal(self) -> None:
        """Read what the terminal has now: everything written to it so far, unless that is very much."""
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
        """Read what the shell has reported."""
        for _ in range(_READS_IN_A_ROW):
            if self._reports is None:
                return
            try:
                data = os.read(self._reports.reader, _READ)
            except OSError:
                return
            for item in self.reader.feed(data):
                self._said(item)
            if len(data) < _READ:
                return
