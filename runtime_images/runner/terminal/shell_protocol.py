"""What is said to a shell: the lines of its kind, with the words that make its answers valid."""

from __future__ import annotations

from typing import Dict, Optional, Tuple

from . import shell_reports
from .pty import find_program
from .shell_reports import Lines, exit_word, loans, quote
from .shell_streams import Streams

# The same as for bash (see ``shell_reports``), but when such a shell is lost only its exported variables are kept,
# since it cannot print its functions.
_NO_PROMPT = "PS1= PS2="
_FACTS = '"${!-}" "${PWD-}" "${PATH-}" "$-"'


def run(command: str, variables: Dict[str, str], ended: str, terminal: str, last_status: int, *, sourced: bool) -> str:
    """Return the line that runs the command, which sees the last command's status in ``$?``.

    Without ``command`` a syntax error would cost the shell the lines that follow. A prompt that the command has made
    could last, or end the shell.
    """
    del sourced  # its ``eval`` bears every mode of editing
    before = ":;" if last_status == 0 else f"(exit {last_status}) ||"
    evaluation = f"{before} {loans(variables)}command eval {quote(command)} 0<>{terminal} 1>&0 2>&0"
    return f"{evaluation}; {ended}=$?; {_NO_PROMPT}\n"


def report(word: str, ended: str, pipe: str, terminal: str) -> str:
    """Return the line that reports how the command ended."""
    return (
        f"_{word}=${{{ended}-$?}}; {{ command printf '\\033]{word}\\007' >|{terminal}; "
        f"command printf '\\0%s\\0%s\\0%s\\0%s\\0%s\\0%s\\0' {word} \"$_{word}\" {_FACTS} >|{pipe}; }} || :; "
        f"unset _{word} {ended}\n"
    )


def write_down(word: str, pipe: str) -> str:
    """Return the commands with which a shell writes what it can of its state to the pipe."""
    return (
        "{ command printf '\\0'; command export -p; command printf 'umask '; command umask; "
        f"command printf '\\0\\0\\0%s\\0' {word}.state; }} >|{pipe}"
    )


def start(
    word: str, pipe: str, state_pipe: str, terminal: str, directory: str, state: Optional[bytes], profile: bool
) -> bytes:
    """Return the first lines of a new shell; it reports with the same word when it is ready."""
    del profile  # such a shell has read the file that ENV names, if any, by itself
    restored = b""
    if state is not None:
        restored = b"command eval '" + state.replace(b"'", b"'\\''") + f"'; {_NO_PROMPT}\nset +e\n".encode()
    at_exit = (
        f"command printf '%s\\0' '' {exit_word(word)} \"$?\" {_FACTS} >|{pipe}; "
        f"{write_down(exit_word(word), state_pipe)}"
    )
    lines = (
        f"unset ENV HISTFILE MAILCHECK\n{_NO_PROMPT}\n"
        f"trap {quote(at_exit)} EXIT\ncommand cd -- {quote(directory)} || cd /\nunset OLDPWD\n:\n"
        f"{report(word, f'_{word}e', pipe, terminal)}"
    )
    return restored + lines.encode("utf-8", "surrogateescape")


class PlainLines(Lines):
    """How a POSIX shell is started and spoken to."""

    arguments = ("sh", "-is")
    known_by = "-is"
    reads_ahead = True
    tells_traps = False
    run = staticmethod(run)
    report = staticmethod(report)
    write_down = staticmethod(write_down)
    start = staticmethod(start)


class Boundary:
    """Divides the terminal's bytes at a marker, which may arrive in pieces; what is part of it is never output."""

    def __init__(self) -> None:
        self._marker: Optional[bytes] = None
        self._held = b""

    @property
    def awaited(self) -> bool:
        """True until the marker has come or been given up: what comes belongs to the command."""
        return self._marker is not None

    def expect(self, marker: bytes) -> None:
        """Begin to look for a marker, one that starts with an escape character and holds no other."""
        self._marker = marker
        self._held = b""

    def divide(self, data: bytes) -> Tuple[bytes, bytes]:
        """Return the bytes before the marker, and those after it."""
        marker = self._marker
        if marker is None:
            return b"", data
        if self._held:
            data, self._held = self._held + data, b""
        found = data.find(marker)
        if found >= 0:
            self._marker = None
            return data[:found], data[found + len(marker) :]
        escape = data.rfind(b"\x1b", max(0, len(data) - len(marker)))
        if escape >= 0 and marker.startswith(data[escape:]):
            data, self._held = data[:escape], data[escape:]
        return data, b""

    def give_up(self) -> bytes:
        """Look no longer; return what had been held back."""
        held, self._held, self._marker = self._held, b"", None
        return held


class Speech:
    """Speaks to one shell after the other; ``boundary`` looks for the end of a command's output."""

    def __init__(self, streams: Streams) -> None:
        self.boundary = Boundary()
        self.lines = shell_reports.Lines()
        self.word = ""
        self._streams = streams
        self._start_word = self._command_word = ""
        self._ended = f"_{shell_reports.new_word()}"
        self._sourced = False

    def choose(self) -> Optional[str]:
        """Choose what shell there is to speak to; return its path, None when the image has none."""
        bash = find_program("bash")
        self.lines = shell_reports.Lines() if bash is not None else PlainLines()
        return bash or find_program("sh")

    def expect(self) -> None:
        """Make a new word for the next report; those of before are not valid any more."""
        self.word = shell_reports.new_word()
        # The state after the last command may still be on its way, and an exiting shell speaks with its first word.
        last = shell_reports.exit_word(self._start_word)
        self._streams.reader.expect(self.word, last)
        self._streams.state.expect(self.word, self._command_word, last)
        self.boundary.expect(shell_reports.marker(self.word))

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
        self._ended = f"_{shell_reports.new_word()}"
        self._streams.state.lend(variables)
        # A function that changes the mode of editing is called by commands that do not show it.
        self._sourced = self._sourced or shell_reports.changes_editing(command)
        terminal = self._streams.terminal.name
        line = self.lines.run(command, variables, self._ended, terminal, status, sourced=self._sourced)
        after = f"{self.lines.write_down(self.word, self._streams.state.path)}\n"
        if "trap" in command and self.lines.tells_traps:
            line = shell_reports.without_trap(self._start_word) + line
            trap = shell_reports.at_exit(self._start_word, self._streams.report_path, self._streams.state.path)
            after += shell_reports.with_trap(trap)
        return line.encode("utf-8"), self.report() + after.encode()

    def report(self) -> bytes:
        """Return what has the shell report, as it was told already."""
        return self.lines.report(
            self.word, self._ended, self._streams.report_path, self._streams.terminal.name
        ).encode()
