"""The lines of text files, whatever their encoding."""

from __future__ import annotations

from typing import List

from ..files import encoding


def read_lines(path: str) -> List[str]:
    """The lines without their ends, which may be of any system; one at the end of the file begins no further line.

    Raises:
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        return lines_of(file.read())


def lines_of(content: bytes) -> List[str]:
    """The lines of a text file's bytes."""
    text = encoding.readable(encoding.decode(content).text)
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return lines if lines[-1] else lines[:-1]
