"""Braces, and the fields that the text of a word falls into."""

from __future__ import annotations

import re
from itertools import pairwise

from agent_core.security.shell.marks import CLOSE_BRACE, COMMA, OPEN_BRACE, PRESENT, SEPARATOR
from agent_core.security.shell.syntax import TooComplexError

MAX_FIELDS = 256
_SEQUENCE = re.compile(r"(-?\d{1,9})\.\.(-?\d{1,9})(?:\.\.-?\d+)?|([A-Za-z])\.\.([A-Za-z])(?:\.\.-?\d+)?", re.ASCII)
_TO_MARKS = str.maketrans({"{": OPEN_BRACE, ",": COMMA, "}": CLOSE_BRACE})
_TO_TEXT = str.maketrans({OPEN_BRACE: "{", COMMA: ",", CLOSE_BRACE: "}", PRESENT: None})
_WHITE = re.compile(r"[ \t\n]+")


def unquoted(text: str) -> str:
    """Text of the script itself, in which braces have their meaning."""
    return text.translate(_TO_MARKS)


def quoted(text: str) -> str:
    """Text in quotes: a field even when it is empty."""
    return PRESENT + text


def split(text: str) -> str:
    """An unquoted value: white space separates fields."""
    return _WHITE.sub(SEPARATOR, text)


def fields_of(raw: str) -> list[str]:
    """The fields that a word, put together of `unquoted`, `quoted` and `split` texts, expands to.

    Raises:
        TooComplexError: they are too many.
    """
    if raw.count(OPEN_BRACE) > MAX_FIELDS:
        raise TooComplexError("the braces of a word are too many")
    fields: list[str] = []
    words = _braces(raw) if OPEN_BRACE in raw else [raw]
    for word in words:
        fields.extend(field.translate(_TO_TEXT) for field in word.split(SEPARATOR) if field)
        if len(fields) > MAX_FIELDS * 16:
            raise TooComplexError("the words of a command are too many")
    return fields


def _braces(raw: str) -> list[str]:
    waiting, done = [raw], []
    rounds = 0
    while waiting:
        rounds += 1
        word = waiting.pop()
        choices = _first_choice(word)
        if choices is None:
            done.append(word)
        else:
            waiting.extend(reversed(choices))
        if len(waiting) + len(done) > MAX_FIELDS or rounds > 4 * MAX_FIELDS:
            raise TooComplexError("the braces of a word expand to too much")
    return done


def _first_choice(word: str) -> list[str] | None:
    """The words that the first braces with a choice in them stand for; None when there are none."""
    opened: list[tuple[int, list[int]]] = []
    outermost: tuple[int, list[int], int] | None = None
    for position, character in enumerate(word):
        if character == OPEN_BRACE:
            opened.append((position, []))
        elif character == COMMA and opened:
            opened[-1][1].append(position)
        elif character == CLOSE_BRACE and opened:
            start, commas = opened.pop()
            if commas or _SEQUENCE.fullmatch(word, start + 1, position):
                outermost = (start, commas, position)
                if not opened:
                    break
    if outermost is None:
        return None
    start, commas, end = outermost
    before, after = word[:start], word[end + 1 :]
    if commas:
        borders = [start, *commas, end]
        inside = [word[left + 1 : right] for left, right in pairwise(borders)]
    else:
        inside = _sequence(word[start + 1 : end])
    return [before + choice + after for choice in inside]


def _sequence(text: str) -> list[str]:
    found = _SEQUENCE.fullmatch(text)
    assert found is not None  # noqa: S101 - the caller has matched it
    if found[1] is not None:
        first, last = int(found[1]), int(found[2])
        step = 1 if first <= last else -1
        # Numbers are all alike to every rule, so the first few will do.
        return [str(number) for number in range(first, last + step, step)[:16]]
    start, end = ord(found[3]), ord(found[4])
    step = 1 if start <= end else -1
    return [chr(code) for code in range(start, end + step, step)]
