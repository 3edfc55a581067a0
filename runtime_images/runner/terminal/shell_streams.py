"""What a shell is heard through: its terminal, and the ways for its reports and its state."""

from __future__ import annotations

import os
from typing import Callable, List, Optional

from ..core.loop import Loop, Timer
from . import shell_reports
from .pty import Inlet, Terminal
from .shell_state import StatePipe

_READ = 16 * 1024
_READS_IN_A_ROW = 64
_HOLD_SECONDS = 0.002


class Streams:
    """Reads them in bounded portions. They outlive a shell: the next one, and background jobs, use them on."""

    def __init__(
        self, loop: Loop, output: Callable[[bytes], None], said: Callable[[shell_reports.Report], None]
    ) -> None:
        """``output`` gets the terminal's bytes, ``said`` the shell's reports."""
        self.reader = shell_reports.ReportReader()
        self.state = StatePipe(loop)
        self._loop = loop
        self._output = output
        self._said = said
        self._terminal: Optional[Terminal] = None
        self._reports: Optional[Inlet] = None
        self._held: Optional[Timer] = None

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
        """The path under which the shell opens the way for a report."""
        return self._reports.path if self._reports is not None else os.devnull

    def open(self) -> Terminal:
        """Open what is not open; raises OSError when there is no terminal or no descriptor to be had."""
        if self._terminal is None:
            self._terminal = Terminal()
            self._loop.add_reader(self._terminal.master, self.read_terminal)
        if self._reports is None:
            self._reports = Inlet()
            self._loop.add_reader(self._reports.reader, self.read_reports)
        self.state.open()
        return self._terminal

    def close(self) -> None:
        """Close them, and forget the state."""
        self.state.close()
        self._cancel_hold()
        if self._terminal is not None:
            self._terminal.close(self._loop)
            self._terminal = None
        if self._reports is not None:
            self._reports.close(self._loop)
            self._reports = None

    def restore(self) -> None:
        """Undo what programs did to the modes of what they can open, and forget input that nobody read."""
        self.terminal.restore()
        self.state.restore()
        if self._reports is not None:
            self._reports.restore()

    def hold(self) -> None:
        """Leave the terminal alone for a moment, so that a short command's output is read once, with its report.

        Being woken for each of its lines would cost more than the command.
        """
        if self._terminal is not None and self._held is None:
            self._loop.remove_reader(self._terminal.master)
            self._held = self._loop.call_later(_HOLD_SECONDS, self.watch)

    def watch(self) -> None:
        """Read the terminal whenever there is something, again."""
        self._cancel_hold()
        if self._terminal is not None:
            self._loop.add_reader(self._terminal.master, self.read_terminal)

    def _cancel_hold(self) -> None:
        if self._held is not None:
            self._held.cancel()
            self._held = None

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
