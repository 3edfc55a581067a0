"""JSON documents from outside: counted before they are parsed, and parsed beside the loop where that takes long.

A parser does all of its work at once. A few megabytes of brackets make millions of values, for which everybody else
would wait; so their number is found out first, piece by piece, from what stands between the texts.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

from agent_core.json_values import TooManyValuesError, check_values, counted, may_have_more
from server.wire.errors import WireError
from server.wire.json_data import MAX_VALUES, check_json, check_text, read_json, read_text

SMALL_BYTES: Final = 32 * 1024
"""Whatever such a document holds takes no time to speak of."""

_LARGE_BYTES: Final = 1024 * 1024
_FEW_VALUES: Final = 2_000

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
    if len(body) > _LARGE_BYTES or may_have_more(body, min(max_values, MAX_VALUES)):
        with _told():
            for so_far in counted(body, most=max_values, most_without_object=MAX_VALUES):
                values = so_far
                await asyncio.sleep(0)
    return values


def check_number_now(body: bytes, *, max_values: int = MAX_VALUES) -> None:
    """The same at once, for what is no larger than a message.

    Raises:
        WireError: it holds more.
    """
    with _told():
        check_values(body, most=max_values, most_without_object=MAX_VALUES)


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


@contextlib.contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except TooManyValuesError as error:
        raise WireError(f"the message holds {error}; send fewer at a time") from None
