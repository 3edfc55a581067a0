"""The lines that make a bash run one command and report on it, and the reader of those reports.

The shell reads these lines from a private pipe, its standard input. A command is handed to ``eval`` quoted, with the
terminal as its standard streams for that time. The line that reports is read by the shell only after the command has
ended: the word that makes a report valid does not exist in the shell while the command runs, so that no command and
no program can speak for it. Reports go to a pipe opened by its path for the purpose; no descriptor of ours is open in
any program.
"""

from __future__ import annotations

import os
import re
from typing import Dict, List, NamedTuple, Optional, Tuple

from . import shell_state

_LIMIT = 1024 * 1024
_FIELDS = 6
_SETS = re.compile(r"\b(?:set|shopt)\b")
_EDITING = re.compile(r"\b(?:vi|emacs)\b|[-+]\w{0,8}o\s{1,8}[\w\"']{0,8}[$`]")
"""The names of the modes of editing, or an option whose name is only known when the command runs."""
_ONLY_THEN = "promptvars expand_aliases"
"""Options that are on only while a command runs."""
_FACTS = '"${!-}" "${PWD+${PWD:0:32768}}" "${PATH+${PATH:0:32768}}" "$-"'


class Report(NamedTuple):
    """What the shell says when a command has ended."""

    word: str
    status: int
    background: int
    directory: str
    path: str
    flags: str


def new_word() -> str:
    """Return a word that nobody can guess."""
    return os.urandom(8).hex()


def quote(text: str) -> str:
    """Return the text as one word of a shell line, byte for byte."""
    return "'" + text.replace("'", "'\\''") + "'"


def exit_word(word: str) -> str:
    """Return the word with which a shell started with the other one reports its own end."""
    return word + shell_state.ENDS if word else ""


def marker(word: str) -> bytes:
    """Return what the shell writes to the terminal after a command's last output: a control sequence without effect."""
    return b"\x1b]" + word.encode() + b"\x07"


def loans(variables: Dict[str, str]) -> str:
    """Return the variables as assignments before a command: it has them, exported, and only while it runs."""
    return "".join(f"{name}={quote(value)} " for name, value in variables.items())


def run(command: str, variables: Dict[str, str], ended: str, terminal: str, last_status: int, *, sourced: bool) -> str:
    """Return the line that runs the command, which sees the last command's status in ``$?``.

    Its own is kept in a variable of the name ``ended``, which the command does not know. ``sourced``: it may change
    the mode of editing, or call what does.

    A list of two, because bash gives up a whole list, and not only its current part, when a program of it dies of
    an interrupt. What stands around them keeps the prompt before the next line from doing anything: what the command
    has set to happen there could last, end the shell or change the status. Nor are its aliases for the lines of ours.
    """
    if last_status == 0:
        before = "[[ 1 ]] &&"
    elif last_status == 1:
        before = "[[ '' ]] ||"
    else:
        # No subshell: where no process can be had any more, the command that would end some has to run.
        before = f"{ended}() {{ \\builtin unset -f {ended}; \\builtin return {last_status}; }}; {ended} ||"
    # Without the word ``command`` bash forgets variables lent to ``builtin`` after the first line of what it evaluates.
    builtin = f"{loans(variables)}\\builtin command" if variables else "\\builtin"
    # A change of the editing mode makes ``eval`` of a shell that does not edit lines crash, but not ``source``.
    evaluate = "source /dev/fd/9 9<<<" if sourced else "eval "
    evaluation = f"{before} {builtin} {evaluate}{quote(command)} 0<>{terminal} 1>&0 2>&0"
    return (
        f"\\builtin shopt -s {_ONLY_THEN}; {evaluation}; {ended}=$?; \\builtin shopt -u {_ONLY_THEN}; "
        f"[[ ! ${{PROMPT_COMMAND[*]+x}} ]] || PROMPT_COMMAND=()\n"
    )


def changes_editing(command: str) -> bool:
    """Return whether the command may change the mode of editing lines, or make a function that does."""
    if _EDITING.search(command) is None:  # as in nearly all
        return False
    return any(_SETS.search(line) and _EDITING.search(line) for line in command.split("\n"))


def report(word: str, ended: str, pipe: str, terminal: str) -> str:
    """Return the two lines that report how the command ended.

    A shell runs a line when it has read it, so the first holds only what the answer waits for: the marker behind the
    command's output and, last, the fields of the report. Their ``printf`` leaves a variable behind. If it does not,
    somebody has replaced the built-in commands, and the second line puts them back (in the shell's POSIX mode
    functions cannot hide ``unset``) and tries again, or else the shell ends.

    The first ``printf`` prints nothing. It takes the blame for a write that an interrupt has made fail, which bash puts
    on the next that writes, and shows whether it can be relied on: another's would print on the terminal. The empty
    field at the beginning ends whatever an interrupted writer has left in the pipe.
    """
    send = (
        f"{{ \\builtin printf '%n' _{word}t; [[ ! ${{_{word}t-}} ]] || {{ "
        f"\\builtin printf '\\e]{word}\\a' >|{terminal}; "
        "\\builtin printf '\\0%s\\0%s\\0%s\\0%s\\0%s\\0%s\\0%n' "
        f'{word} "$_{word}s" {_FACTS} _{word} >|{pipe}; }}; }} || [[ 1 ]]'
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


def at_exit(word: str, pipe: str, state_pipe: str) -> str:
    """Return the command that has a shell report its own end, and write its state to ``state_pipe``."""
    state = shell_state.write_down(exit_word(word), state_pipe)
    report = f"\\builtin printf '%s\\0' '' {exit_word(word)} \"$?\" {_FACTS} >|{pipe}"
    return f"\\builtin trap -- {quote(f'{{ {report}; {state}; }} 2>|/dev/null')} EXIT"


def without_trap(word: str) -> str:
    """Return the line that takes ``at_exit`` back, for a command that may list the traps; another's is left alone."""
    return f"[[ $(\\builtin trap -p EXIT 2>|/dev/null) != *{exit_word(word)}* ]] || \\builtin trap - EXIT || [[ 1 ]]\n"


def with_trap(trap: str) -> str:
    """Return the line that puts ``at_exit`` back, unless the command has set a trap of its own."""
    return f"[[ $(\\builtin trap -p EXIT 2>|/dev/null) ]] || {trap} || [[ 1 ]]\n"


def start(
    word: str, pipe: str, state_pipe: str, terminal: str, directory: str, state: Optional[bytes], profile: bool
) -> bytes:
    """Return the first lines of a new shell; it reports with the same word when it is ready.

    When it ends it writes its state to ``state_pipe``; ``state`` is the script of one to restore. What runs
    at a prompt is not restored: it would silence the shell, or end it.
    """
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
    lines.append(f"{at_exit(word, pipe, state_pipe)}\n")
    enter = f"\\builtin cd -- {quote(directory)} || \\builtin cd /"
    if state is None:
        lines.append(f"{enter}; \\builtin unset -v OLDPWD; \\builtin export OLDPWD\n")
    else:
        back = "[[ ! $_drydock ]] || OLDPWD=$_drydock; \\builtin unset -v _drydock"
        lines.append(f"_drydock=${{OLDPWD-}}; {enter}; {back}\n")
    lines.append(f"\\builtin shopt -u {_ONLY_THEN}\n[[ 1 ]]\n")
    lines.append(report(word, f"_{word}e", pipe, terminal))
    text = "".join(lines).encode("utf-8", "surrogateescape")
    if state is not None:
        quoted = b"'" + state.replace(b"'", b"'\\''") + b"'"
        text = text.replace(b"@STATE@", b"\\builtin eval " + quoted, 1)
    return text


class Lines:
    """How a kind of shell is started and spoken to: bash, the one that everything here is made for."""

    arguments: Tuple[str, ...] = ("bash", "--noprofile", "--norc", "--noediting", "-i")
    known_by = "--noediting"
    """One of its arguments, by which it is told from a program that has taken its place."""
    reads_ahead = False
    """Whether what it has read of the lines behind a command may be taken for input by programs of the command.

    Busybox runs many of them in a copy of itself.
    """
    tells_traps = True
    """Whether it can tell its trap on EXIT from one of a command's."""
    run = staticmethod(run)
    report = staticmethod(report)
    write_down = staticmethod(shell_state.write_down)
    start = staticmethod(start)


class ReportReader:
    """Finds reports in what comes out of the pipe; anything that does not begin with an expected word is ignored."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._fields: List[str] = []
        self._expected: Tuple[str, ...] = ()

    def expect(self, *words: str) -> None:
        """Say which words make a report valid from now on."""
        self._expected = tuple(word for word in words if word)

    def reset(self) -> None:
        """Forget what a shell that is dead has begun to say."""
        self._buffer.clear()
        self._fields = []

    def feed(self, data: bytes) -> List[Report]:
        """Take the next bytes; return the reports they complete."""
        found: List[Report] = []
        self._buffer += data
        *fields, rest = self._buffer.split(b"\0")
        for field in fields:
            self._field(field.decode("utf-8", "surrogateescape"), found)
        self._buffer = rest if len(rest) <= _LIMIT else bytearray()
        return found

    def _field(self, text: str, found: List[Report]) -> None:
        if self._fields:
            self._fields.append(text)
            if len(self._fields) == _FIELDS:
                word, status, background, directory, path, flags = self._fields
                self._fields = []
                found.append(Report(word, _number(status), _number(background), directory, path, flags))
        elif text in self._expected:
            self._fields = [text]


def _number(text: str) -> int:
    return int(text) if text.isdigit() and len(text) < 12 else -1
