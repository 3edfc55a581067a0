"""Lines by which the runner has a shell run a command and report on it, and where a command's output ends.

The shell reads lines from a private pipe, its standard input. A command is handed to ``eval`` quoted, with the terminal
as its standard streams for that time. The reporting line is read only after the command has ended, and the word that
makes a report valid does not exist in the shell before: no command and no program can forge one. Reports go to a pipe
opened by its path for the purpose; no descriptor of the runner is open in any program.
"""

from __future__ import annotations

import os
import re
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

from . import shell_state
from .pty import find_program
from .shell_streams import Streams

_SETS = re.compile(r"\b(?:set|shopt)\b")
_EDITING = re.compile(r"\b(?:vi|emacs)\b|[-+]\w{0,8}o\s{1,8}[\w\"']{0,8}[$`]")
"""Names of the editing modes, or an option whose name is only known when the command runs."""
_ONLY_THEN = "promptvars expand_aliases"
"""Options that are on only while a command runs."""
_BASH_FACTS = '"${!-}" "${PWD+${PWD:0:32768}}" "${PATH+${PATH:0:32768}}" "$-"'
_POSIX_FACTS = '"${!-}" "${PWD-}" "${PATH-}" "$-"'
_NO_PROMPT = "PS1= PS2="


def quote(text: str) -> str:
    """The text as one word of a shell line, byte for byte."""
    return "'" + text.replace("'", "'\\''") + "'"


def exit_word(word: str) -> str:
    """The word with which a shell started with the other one reports its own end."""
    return word + shell_state.ENDS if word else ""


def _new_word() -> str:
    return os.urandom(8).hex()  # nobody can guess it


def _assignments(variables: Dict[str, str]) -> str:
    return "".join(f"{name}={quote(value)} " for name, value in variables.items())


def _bash_run(command: str, variables: Dict[str, str], ended: str, terminal: str, last: int, sourced: bool) -> str:
    """The line that runs the command, which sees ``last`` in ``$?``; its status goes to ``ended``.

    ``sourced``: the command may change the editing mode, or call what does.

    A list of two, because bash gives up a whole list when a program of it dies of an interrupt. What stands around them
    disables the prompt's actions and aliases until the next line: those set by the command could last, end the shell or
    change the status.
    """
    if last == 0:
        before = "[[ 1 ]] &&"
    elif last == 1:
        before = "[[ '' ]] ||"
    else:
        # No subshell: where no process can be had any more, the command that would end some has to run.
        before = f"{ended}() {{ \\builtin unset -f {ended}; \\builtin return {last}; }}; {ended} ||"
    # Without the word ``command`` bash forgets variables lent to ``builtin`` after the first line of what it evaluates.
    builtin = f"{_assignments(variables)}\\builtin command" if variables else "\\builtin"
    # A change of the editing mode makes ``eval`` of a shell that does not edit lines crash, but not ``source``.
    evaluate = "source /dev/fd/9 9<<<" if sourced else "eval "
    evaluation = f"{before} {builtin} {evaluate}{quote(command)} 0<>{terminal} 1>&0 2>&0"
    return (
        f"\\builtin shopt -s {_ONLY_THEN}; {evaluation}; {ended}=$?; \\builtin shopt -u {_ONLY_THEN}; "
        f"[[ ! ${{PROMPT_COMMAND[*]+x}} ]] || PROMPT_COMMAND=()\n"
    )


def _bash_report(word: str, ended: str, pipe: str, terminal: str) -> str:
    """The two lines that report how the command ended.

    A shell runs a line when it has read it, so the first holds only what the answer waits for: the marker behind the
    output and, last, the fields of the report. Their ``printf`` leaves a variable behind. If it does not, the built-ins
    were replaced, and the second line restores them (in POSIX mode functions cannot hide ``unset``) and tries again, or
    else the shell ends.

    The first ``printf`` prints nothing. It takes the blame for a write that an interrupt made fail, which bash puts on
    the next writer, and shows whether it is the real one: another's would print on the terminal. The empty first field
    ends whatever an interrupted writer left in the pipe.
    """
    send = (
        f"{{ \\builtin printf '%n' _{word}t; [[ ! ${{_{word}t-}} ]] || {{ "
        f"\\builtin printf '\\e]{word}\\a' >|{terminal}; "
        "\\builtin printf '\\0%s\\0%s\\0%s\\0%s\\0%s\\0%s\\0%n' "
        f'{word} "$_{word}s" {_BASH_FACTS} _{word} >|{pipe}; }}; }} || [[ 1 ]]'
    )
    done = f"[[ ${{_{word}-}} ]]"
    clean = f"\\builtin unset -v _{word} _{word}s _{word}t {ended}"
    repair = (
        "{ POSIXLY_CORRECT=y; \\unset -f unset builtin printf eval enable exit declare; "
        "\\enable builtin printf eval unset declare shopt; \\unset -v POSIXLY_CORRECT; "
        f"{send}; {done} || \\exit $_{word}s; {clean}; }}"
    )
    restore = f"{done} && \\builtin enable eval declare shopt && {clean} || {repair}"
    return f"_{word}s=${{{ended}-$?}}; {send}\n{restore}\n"


def _at_exit(word: str, pipe: str, state_pipe: str) -> str:
    state = shell_state.write_down(exit_word(word), state_pipe)
    report = f"\\builtin printf '%s\\0' '' {exit_word(word)} \"$?\" {_BASH_FACTS} >|{pipe}"
    return f"\\builtin trap -- {quote(f'{{ {report}; {state}; }} 2>|/dev/null')} EXIT"


def _bash_start(
    word: str, pipe: str, state_pipe: str, terminal: str, directory: str, state: Optional[bytes], profile: bool
) -> bytes:
    """First lines of a new shell, which reports when ready; ``state`` restores one, but for what runs at a prompt."""
    lines: List[str] = []
    streams = f"0<>{terminal} 1>&0 2>&0"
    no_prompt = f"; \\builtin shopt -u {_ONLY_THEN}; \\builtin unset -v PROMPT_COMMAND PS0\n"
    if state is not None:
        lines.append(f"@STATE@{no_prompt}")
        lines.append("\\builtin set +e +t +n\n")
    elif profile:
        lines.append(f"[[ -r /etc/bash.bashrc ]] && \\builtin source /etc/bash.bashrc {streams}{no_prompt}")
        lines.append(
            f"\\builtin shopt -s expand_aliases; [[ -r ~/.bashrc ]] && \\builtin source ~/.bashrc {streams}{no_prompt}"
        )
    lines.append("\\builtin unset -v HISTFILE MAILCHECK TMOUT PROMPT_COMMAND PS0\n")
    lines.append("\\builtin set +o history +H\n\\builtin history -c\n")
    lines.append(f"{_at_exit(word, pipe, state_pipe)}\n")
    enter = f"\\builtin cd -- {quote(directory)} || \\builtin cd /"
    if state is None:
        lines.append(f"{enter}; \\builtin unset -v OLDPWD; \\builtin export OLDPWD\n")
    else:
        back = "[[ ! $_drydock ]] || OLDPWD=$_drydock; \\builtin unset -v _drydock"
        lines.append(f"_drydock=${{OLDPWD-}}; {enter}; {back}\n")
    lines.append(f"\\builtin shopt -u {_ONLY_THEN}\n[[ 1 ]]\n")
    lines.append(_bash_report(word, f"_{word}e", pipe, terminal))
    text = "".join(lines).encode("utf-8", "surrogateescape")
    if state is not None:
        quoted = b"'" + state.replace(b"'", b"'\\''") + b"'"
        text = text.replace(b"@STATE@", b"\\builtin eval " + quoted, 1)
    return text


def _posix_run(command: str, variables: Dict[str, str], ended: str, terminal: str, last: int, _sourced: bool) -> str:
    """The same for a POSIX shell, whose ``eval`` bears every editing mode.

    Without ``command`` a syntax error would cost the shell the lines that follow. A prompt set by the command could
    last, or end the shell.
    """
    before = ":;" if last == 0 else f"(exit {last}) ||"
    evaluation = f"{before} {_assignments(variables)}command eval {quote(command)} 0<>{terminal} 1>&0 2>&0"
    return f"{evaluation}; {ended}=$?; {_NO_PROMPT}\n"


def _posix_report(word: str, ended: str, pipe: str, terminal: str) -> str:
    return (
        f"_{word}=${{{ended}-$?}}; {{ command printf '\\033]{word}\\007' >|{terminal}; "
        f"command printf '\\0%s\\0%s\\0%s\\0%s\\0%s\\0%s\\0' {word} \"$_{word}\" {_POSIX_FACTS} >|{pipe}; }} || :; "
        f"unset _{word} {ended}\n"
    )


def _posix_write_down(word: str, pipe: str) -> str:
    return (
        "{ command printf '\\0'; command export -p; command printf 'umask '; command umask; "
        f"command printf '\\0\\0\\0%s\\0' {word}.state; }} >|{pipe}"
    )


def _posix_start(
    word: str, pipe: str, state_pipe: str, terminal: str, directory: str, state: Optional[bytes], _profile: bool
) -> bytes:
    restored = b""
    if state is not None:
        restored = b"command eval '" + state.replace(b"'", b"'\\''") + f"'; {_NO_PROMPT}\nset +e\n".encode()
    at_exit = (
        f"command printf '%s\\0' '' {exit_word(word)} \"$?\" {_POSIX_FACTS} >|{pipe}; "
        f"{_posix_write_down(exit_word(word), state_pipe)}"
    )
    lines = (
        f"unset ENV HISTFILE MAILCHECK\n{_NO_PROMPT}\n"
        f"trap {quote(at_exit)} EXIT\ncommand cd -- {quote(directory)} || cd /\nunset OLDPWD\n:\n"
        f"{_posix_report(word, f'_{word}e', pipe, terminal)}"
    )
    return restored + lines.encode("utf-8", "surrogateescape")


class Dialect(NamedTuple):
    """A kind of shell: its start and its commands."""

    arguments: Tuple[str, ...]
    known_by: str
    """One of its arguments, which tells it from a program that took its place."""
    reads_ahead: bool
    """Whether the command's programs may read following lines as input: Busybox runs many in a copy of itself."""
    tells_traps: bool
    """Whether it can tell its trap on EXIT from one of a command's."""
    run: Callable[[str, Dict[str, str], str, str, int, bool], str]
    report: Callable[[str, str, str, str], str]
    write_down: Callable[[str, str], str]
    start: Callable[[str, str, str, str, str, Optional[bytes], bool], bytes]


_BASH = Dialect(
    arguments=("bash", "--noprofile", "--norc", "--noediting", "-i"),
    known_by="--noediting",
    reads_ahead=False,
    tells_traps=True,
    run=_bash_run,
    report=_bash_report,
    write_down=shell_state.write_down,
    start=_bash_start,
)
# When such a shell is lost only its exported variables are kept, since it cannot print its functions. By itself it has
# read the file that ENV names, if any.
_POSIX = Dialect(
    arguments=("sh", "-is"),
    known_by="-is",
    reads_ahead=True,
    tells_traps=False,
    run=_posix_run,
    report=_posix_report,
    write_down=_posix_write_down,
    start=_posix_start,
)


class Boundary:
    """Divides the terminal's bytes at a marker (a control sequence without effect), which may arrive in pieces."""

    def __init__(self) -> None:
        self._marker: Optional[bytes] = None
        self._pending = b""

    @property
    def awaited(self) -> bool:
        """True until the marker has come or been given up: what comes belongs to the command."""
        return self._marker is not None

    def expect(self, word: str) -> None:
        self._marker = b"\x1b]" + word.encode() + b"\x07"
        self._pending = b""

    def divide(self, data: bytes) -> Tuple[bytes, bytes]:
        marker = self._marker
        if marker is None:
            return b"", data
        if self._pending:
            data, self._pending = self._pending + data, b""
        found = data.find(marker)
        if found >= 0:
            self._marker = None
            return data[:found], data[found + len(marker) :]
        escape = data.rfind(b"\x1b", max(0, len(data) - len(marker)))
        if escape >= 0 and marker.startswith(data[escape:]):
            data, self._pending = data[:escape], data[escape:]
        return data, b""

    def give_up(self) -> bytes:
        pending, self._pending, self._marker = self._pending, b"", None
        return pending


class ShellProtocol:
    """Speaks to one shell after the other; ``boundary`` looks for the end of a command's output."""

    def __init__(self, streams: Streams) -> None:
        self.boundary = Boundary()
        self.dialect = _BASH
        self.word = ""
        self._streams = streams
        self._start_word = self._command_word = ""
        self._ended = f"_{_new_word()}"
        self._sourced = False

    def choose(self) -> Optional[str]:
        """Choose a shell and return its path; None when the image has none."""
        bash = find_program("bash")
        self.dialect = _BASH if bash is not None else _POSIX
        return bash or find_program("sh")

    def expect(self) -> None:
        """Make a new word for the next report; earlier ones become invalid."""
        self.word = _new_word()
        # The state after the last command may still be on its way, and an exiting shell speaks with its first word.
        last = exit_word(self._start_word)
        self._streams.reader.expect(self.word, last)
        self._streams.state.expect(self.word, self._command_word, last)
        self.boundary.expect(self.word)

    def start(self, directory: str, *, plain: bool) -> bytes:
        """The first lines for a new shell; not ``plain``, with the last one's state or the profile."""
        self.expect()
        self._start_word = self._command_word = self.word
        streams = self._streams
        state = None if plain else streams.state.script()
        return self.dialect.start(
            self.word, streams.report_path, streams.state.path, streams.terminal.name, directory, state, not plain
        )

    def run(self, command: str, variables: Dict[str, str], status: int) -> Tuple[bytes, bytes]:
        self.expect()
        self._command_word = self.word
        self._ended = f"_{_new_word()}"
        state = self._streams.state
        state.lent = frozenset(variables)
        # A function that changes the mode of editing is called by commands that do not show it.
        if not self._sourced and _EDITING.search(command) is not None:  # as in hardly any
            lines = command.split("\n")
            self._sourced = any(_SETS.search(line) and _EDITING.search(line) for line in lines)
        terminal = self._streams.terminal.name
        line = self.dialect.run(command, variables, self._ended, terminal, status, self._sourced)
        after = f"{self.dialect.write_down(self.word, state.path)}\n"
        if "trap" in command and self.dialect.tells_traps:
            # Ours is taken back, since the command may list the traps, and put back where it has set none of its own.
            ours = "[[ $(\\builtin trap -p EXIT 2>|/dev/null)"
            without = f"{ours} != *{exit_word(self._start_word)}* ]] || \\builtin trap - EXIT || [[ 1 ]]\n"
            line = without + line
            trap = _at_exit(self._start_word, self._streams.report_path, state.path)
            after += f"{ours} ]] || {trap} || [[ 1 ]]\n"
        return line.encode("utf-8"), self.report() + after.encode()

    def report(self) -> bytes:
        streams = self._streams
        return self.dialect.report(self.word, self._ended, streams.report_path, streams.terminal.name).encode()
