"""What is said to a shell: the lines of its kind, with the words that make its answers valid."""

from __future__ import annotations

from typing import Dict, Optional, Tuple

from . import driver
from .boundary import Boundary
from .plain_lines import PlainLines
from .pty import find_program
from .streams import Streams


class Speech:
    """Speaks to one shell after the other; ``boundary`` looks for the end of a command's output."""

    def __init__(self, streams: Streams) -> None:
        self.boundary = Boundary()
        self.lines = driver.Lines()
        self.word = ""
        self._streams = streams
        self._start_word = self._command_word = ""
        self._ended = f"_{driver.new_word()}"
        self._sourced = False

    def choose(self) -> Optional[str]:
        """Choose what shell there is to speak to; return its path, None when the image has none."""
        bash = find_program("bash")
        self.lines = driver.Lines() if bash is not None else PlainLines()
        return bash or find_program("sh")

    def expect(self) -> None:
        """Make a new word for the next report; those of before are not valid any more."""
        self.word = driver.new_word()
        # The state after the last command may still be on its way, and an exiting shell speaks with its first word.
        last = driver.exit_word(self._start_word)
        self._streams.reader.expect(self.word, last)
        self._streams.state.expect(self.word, self._command_word, last)
        self.boundary.expect(driver.marker(self.word))

    def start(self, directory: str, *, plain: bool) -> bytes:
        """Return what a new shell is told first, unless ``plain`` with the state of the last one or the profile."""
        self.expect()
        self._start_word = self._command_word = self.word
        pipes = self._streams.report_path, self._streams.state.path
        state = None if plain else self._streams.state.script()
        return self.lines.start(self.word, *pipes, self._streams.terminal.name, directory, state, profile=not plain)

    def run(self, command: str, variables: Dict[str, str], status: int) -> Tuple[bytes, bytes]:
        """Return what has the shell run a command, and what has it report afterwards."""
        self.expect()
        self._command_word = self.word
        self._ended = f"_{driver.new_word()}"
        self._streams.state.lend(variables)
        # A function that changes the mode of editing is called by commands that do not show it.
        self._sourced = self._sourced or driver.changes_editing(command)
        terminal = self._streams.terminal.name
        line = self.lines.run(command, variables, self._ended, terminal, status, sourced=self._sourced)
        after = f"{self.lines.write_down(self.word, self._streams.state.path)}\n"
        if "trap" in command and self.lines.tells_traps:
            line = driver.without_trap(self._start_word) + line
            trap = driver.at_exit(self._start_word, self._streams.report_path, self._streams.state.path)
            after += driver.with_trap(trap)
        return line.encode("utf-8"), self.report() + after.encode()

    def report(self) -> bytes:
        """Return what has the shell report, as it was told already."""
        return self.lines.report(
            self.word, self._ended, self._streams.report_path, self._streams.terminal.name
        ).encode()
