"""The lines for a shell that knows only what POSIX asks for (dash, or busybox's ash), in an image without bash.

The same as for bash (see ``driver``), but when such a shell is lost only its exported variables are kept, since it
cannot print its functions.
"""

from __future__ import annotations

from typing import Dict, Optional

from .driver import Lines, exit_word, loans, quote

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
