"""Where commands print: results on standard output, all else on standard error, and questions on a terminal."""

from __future__ import annotations

import os
import sys
from typing import Final, TextIO

from agent_core.errors import DrydockError

MAX_TEXT: Final = 4 * 1024 * 1024


class Printer:
    """Standard output for results and standard error for news.

    What a stream cannot write is replaced. Raises `BrokenPipeError` where nobody reads the results any more, and
    `DrydockError` where they cannot be written; news that nobody can read are dropped.
    """

    def __init__(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="replace")

    @property
    def is_terminal(self) -> bool:
        """Whether a person reads the results."""
        return is_terminal(sys.stdout)

    @property
    def has_colour(self) -> bool:
        return shows_colour(sys.stdout)

    def print(self, *lines: str) -> None:
        """Print results."""
        if not lines:
            return
        try:
            sys.stdout.write("".join(f"{line}\n" for line in lines))
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the end of the process would try again
            raise DrydockError(f"standard output cannot be written: {error.strerror or error}") from error

    def tell(self, text: str) -> None:
        """Print news."""
        try:
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            pass


def is_terminal(stream: TextIO) -> bool:
    """Whether a stream, which may be closed, is one."""
    try:
        return stream.isatty()
    except (AttributeError, ValueError):
        return False


def shows_colour(stream: TextIO) -> bool:
    """Whether it is a terminal with colours whose user has nothing against them (``NO_COLOR``)."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") not in ("dumb", "")


def ask(question: str, otherwise: str) -> str:
    """What a person answers, in lower case; without a terminal `DrydockError`, which names what to do `otherwise`."""
    if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
        raise DrydockError(f"nobody can be asked here, since this is no terminal: {otherwise}")
    sys.stderr.write(question)
    sys.stderr.flush()
    return sys.stdin.readline().strip().casefold()


def read_text(argument: str, where: str = "the text") -> str:
    """A text that was typed, or for ``-`` all of standard input; `DrydockError` where there is none."""
    try:
        text = sys.stdin.read(MAX_TEXT + 1) if argument == "-" else argument
    except (OSError, ValueError) as error:
        raise DrydockError(f"standard input cannot be read: {error}") from error
    if len(text) > MAX_TEXT:
        raise DrydockError(f"{where} is longer than {MAX_TEXT} characters")
    if not text.strip():
        raise DrydockError(f"{where} is empty")
    return text
