"""JSON documents from outside: counted before they are parsed, and parsed beside the loop where that takes long.

A parser does all of its work at once. A few megabytes of brackets make millions of values, for which everybody else
would wait; so their number is found out first, piece by piece, from what stands between the texts.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

from server.wire.errors import WireError
from server.wire.json_data import MAX_VALUES, check_json, check_text, read_json, read_text

SMALL_BYTES: Final = 32 * 1024
"""Whatever such a document holds takes no time to speak of."""

_LARGE_BYTES: Final = 1024 * 1024
_FEW_VALUES: Final = 2_000
_PIECE: Final = 32 * 1024
_TEXT: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_REST_OF_TEXT: Final = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)

_threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="json")
P = ParamSpec("P")
T = TypeVar("T")


async def aside(work: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Do this in a thread of its own, one after the other: the loop has its turn between two steps of Python."""
    return await asyncio.get_running_loop().run_in_executor(_threads, partial(work, *args, **options))


async def read_document(body: bytes, *, max_values: int = MAX_VALUES, is_strict: bool = True) -> Any:
    """The value of a JSON document, if strict checked by `check_json` and `check_text`; others go on meanwhile.

    Raises:
        WireError: it holds too many values, or what they refuse.
        json.JSONDecodeError: it is no JSON.
    """
    if len(body) <= SMALL_BYTES:
        return _read(body, max_values, is_strict=is_strict)
    has_more = await check_number(body, max_values=max_values) > MAX_VALUES
    return await aside(_read, body, max_values, is_strict=is_strict, has_more=has_more)


async def check_number(body: bytes, *, max_values: int = MAX_VALUES) -> int:
    """How many values a document may hold: no more than this, and no more than `MAX_VALUES` without an object.

    Raises:
        WireError: it holds more.
    """
    values = 0
    if len(body) > _LARGE_BYTES or _may_have_more(body, min(max_values, MAX_VALUES)):
        for so_far in _counting(body, max_values):
            values = so_far
            await asyncio.sleep(0)
    return values


def check_number_now(body: bytes, *, max_values: int = MAX_VALUES) -> None:
    """The same at once, for what is no larger than a message.

    Raises:
        WireError: it holds more.
    """
    if _may_have_more(body, min(max_values, MAX_VALUES)):
        for _ in _counting(body, max_values):
            pass


def has_many_values(data: object) -> bool:
    """Whether it takes a moment to look at each value of such data."""
    waiting, seen = [data], 0
    while waiting and seen <= _FEW_VALUES:
        value = waiting.pop()
        seen += 1
        if isinstance(value, dict | list):
            if len(value) > _FEW_VALUES:
                return True
            waiting.extend(value.values() if isinstance(value, dict) else value)
    return seen > _FEW_VALUES


def _read(body: bytes, max_values: int, *, is_strict: bool, has_more: bool = False) -> Any:
    if not has_more:
        value = read_json(body)
        if is_strict:
            check_json(value, max_chars=len(body), max_values=max_values)
            check_text(body)
        return value
    # Slower, but it comes by here for each object, and lets the loop go on.
    value = read_text(body, is_strict=is_strict)
    if is_strict:
        check_json(value, max_chars=len(body), max_values=max_values)
    return value


def _may_have_more(body: bytes, limit: int) -> bool:
    """Whether there are so many signs of further values, those within texts included."""
    return len(body) > limit and sum(body.count(sign) for sign in (b",", b"[", b"{")) >= limit


def _counting(body: bytes, max_values: int) -> Iterator[int]:
    """The number of values so far, after each piece.

    Raises:
        WireError: there are too many.
    """
    values = 1
    without_object = most_without_object = 0
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
        if is_in_text:
            rest = _REST_OF_TEXT.match(piece)
            ends = len(piece) if rest is None else rest.end()
            is_in_text = ends >= len(piece) or piece[ends : ends + 1] != b'"'
            piece = b"" if is_in_text else b"0" + piece[ends + 1 :]
        piece, opening, _ = _TEXT.sub(b"0", piece).partition(b'"')
        is_in_text = is_in_text or bool(opening)
        piece += b"0" if opening else b""
        new = piece.count(b",") + piece.count(b"[") + piece.count(b"{")
        seam = before + piece
        new -= seam.count(b"[]") + seam.count(b"{}")
        before = seam[-1:]
        values += new
        without_object = new if b"{" in piece else without_object + new
        if values - (before in (b"[", b"{")) > max_values:  # it may be closed at once
            raise WireError(f"the message holds more than {max_values} values; send fewer at a time")
        most_without_object = max(most_without_object, without_object)
        yield values
    if most_without_object > MAX_VALUES:
        raise WireError(f"the message holds more than {MAX_VALUES} values without an object; send fewer at a time")
