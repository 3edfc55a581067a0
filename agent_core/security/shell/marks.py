"""Marks: characters that stand, inside a text, for text that is not known, and say where it comes from.

A command is read without running it, so `curl …` prints "something from the network". As a character in the text, that
knowledge goes wherever the text goes: through pipes, variables, files and quotes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

UNKNOWN: Final = "\x00"
"""Text that is not known."""
NETWORK: Final = "\x01"
"""Text that comes from the network."""
SECRET: Final = "\x02"  # noqa: S105 - a mark, no password
"""Text that is, or holds, a secret."""
DECODED: Final = "\x03"
"""Text that was encoded, so that nobody could see what it is."""
NUMBER: Final = "\x04"
"""A number that is not known: harmless in a path, but nobody can tell what an escape with it stands for."""
MAX_TEXT: Final = 1_500_000
ALL: Final = UNKNOWN + NETWORK + SECRET + DECODED

SEPARATOR: Final = "\ue003"
"""Between the fields of one word's expansion."""
PRESENT: Final = "\ue004"
"""Makes a field that is empty, but quoted, a field all the same."""
OPEN_BRACE: Final = "\ue000"
COMMA: Final = "\ue001"
CLOSE_BRACE: Final = "\ue002"
RESERVED: Final = frozenset(ALL + NUMBER + SEPARATOR + PRESENT + OPEN_BRACE + COMMA + CLOSE_BRACE)
"""Characters that a command must not hold by itself."""


def marks_of(text: str) -> str:
    """The marks in `text`, each once."""
    return "".join(mark for mark in ALL if mark in text)


def is_known(text: str) -> bool:
    """Whether `text` is known to the last character."""
    return not any(mark in text for mark in ALL + NUMBER)


def bounded(text: str) -> str:
    """The text, or only its marks when it is longer than anything that we want to look at."""
    return text if len(text) <= MAX_TEXT else derived(text)


def derived(text: str) -> str:
    """What a program prints that was given `text`: unknown, and tainted with all that `text` is tainted with."""
    return UNKNOWN + marks_of(text).replace(UNKNOWN, "")


def one_of(texts: Iterable[str]) -> str:
    """One of these texts, nobody knows which: what is unknown comes first, then all that it may be."""
    unique = tuple(dict.fromkeys(texts))
    return unique[0] if len(unique) == 1 else bounded("\n".join((UNKNOWN, *unique))) if unique else ""
