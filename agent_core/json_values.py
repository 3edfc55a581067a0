"""Counts the values of a JSON document before it is parsed: a parser does all of its work at once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_PIECE: Final = 32 * 1024
_TEXT: Final = re.compile(rb'"[^"]*"')


class TooManyValuesError(ValueError):
    """A document holds more values than are allowed; says how many those are."""


def check_values(body: bytes, *, most: int, most_without_object: int | None = None) -> None:
    """See at once that a document holds no more values than this; raises `TooManyValuesError`."""
    if may_have_more(body, most if most_without_object is None else min(most, most_without_object)):
        for _ in counted(body, most=most, most_without_object=most_without_object):
            pass


def may_have_more(body: bytes | bytearray, limit: int) -> bool:
    """Whether there are so many signs of further values, those within texts included."""
    return len(body) > limit and sum(body.count(sign) for sign in (b",", b"[", b"{")) >= limit


def counted(body: bytes, *, most: int, most_without_object: int | None = None) -> Iterator[int]:
    """The number of values so far, after each of the document's pieces: others may go on between two of them.

    Raises `TooManyValuesError` for more than `most`, or than `most_without_object` between two objects.
    """
    values = 1
    without_object = longest = 0
    is_in_text = False
    before = b""
    place = 0
    while place < len(body):
        end = place + _PIECE
        piece = body[place:end]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:
            end += 1  # a backslash stays with what it stands before
            piece = body[place:end]
        place = end
        # Escapes go first: a pattern that knew of them would begin anew at each quote of a text that ends elsewhere.
        piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
        if is_in_text:
            _, ending, piece = piece.partition(b'"')
            is_in_text = not ending
            piece = b"0" + piece if ending else b""
        piece, opening, _ = _TEXT.sub(b"0", piece).partition(b'"')
        is_in_text = is_in_text or bool(opening)
        piece += b"0" if opening else b""
        new = piece.count(b",") + piece.count(b"[") + piece.count(b"{")
        seam = before + piece
        new -= seam.count(b"[]") + seam.count(b"{}")
        before = seam[-1:]
        values += new
        without_object = new if b"{" in piece else without_object + new
        if values - (before in (b"[", b"{")) > most:  # it may be closed at once
            raise TooManyValuesError(f"more than {most} values")
        longest = max(longest, without_object)
        yield values
    if most_without_object is not None and longest > most_without_object:
        raise TooManyValuesError(f"more than {most_without_object} values without an object")
