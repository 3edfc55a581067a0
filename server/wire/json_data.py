"""JSON from outside: its number of values is bounded before it is parsed, beside the loop where that takes long."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar

import orjson

from agent_core.json_values import TooManyValuesError, check_values, counted, may_have_more
from server.wire.errors import WireError

MAX_CHARS: Final = 4 * 1024 * 1024
MAX_DEPTH: Final = 64
MAX_VALUES: Final = 20_000
"""To say what is wrong with each of as many takes the loop 40 ms; what people and programs send has far fewer."""

MAX_INTEGER: Final = 2**53
"""Beyond it JavaScript loses digits."""

_DIGITS: Final = 20
_HUGE: Final = MAX_INTEGER + 1
_TOO_HUGE: Final = "is an integer beyond 2^53; send it as a text"
_TOO_DEEP: Final = f"the message is deeper than {MAX_DEPTH} levels; send flatter data"

SMALL_BYTES: Final = 32 * 1024
"""Whatever such a document holds takes no time to speak of."""
STEPS_PER_TURN: Final = 100
"""After so many steps of long work on the loop others have their turn."""
_LARGE_BYTES: Final = 1024 * 1024
_FEW_VALUES: Final = 2_000

_threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="json")
P = ParamSpec("P")
T = TypeVar("T")
_Path: TypeAlias = "tuple[_Path, str | int] | None"


def read_json(text: str | bytes) -> Any:
    """The value of a JSON text, with what `check_json` refuses by name; raises `json.JSONDecodeError`."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if isinstance(text, bytes) and text.decode(errors="ignore").encode() != text:
            raise  # the other parser would guess another encoding
        # Half characters, NaN, infinities, and what is very deep: whoever is to be told of those wants to know where.
        # Thousands of digits take long, and nobody has a turn meanwhile.
        try:
            return json.loads(text, parse_int=_integer)
        except (ValueError, RecursionError):
            raise error from None


def _checked_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _check_pairs(pairs)
    return dict(pairs)


def _checked_integer(text: str) -> int:
    if (value := _integer(text)) > MAX_INTEGER or value < -MAX_INTEGER:
        raise WireError(f"the message {_TOO_HUGE}")
    return value


def check_json(data: object, *, max_chars: int = MAX_CHARS, max_values: int = MAX_VALUES) -> None:
    """Raise `WireError` for data too large, too deep, no JSON, or with NUL, half characters, huge numbers."""
    chars = 0
    values = 0
    waiting: list[tuple[object, int, _Path]] = [(data, 0, None)]
    while waiting:
        value, depth, path = waiting.pop()
        values += 1
        if isinstance(value, str):
            chars += len(value)
            _check_text(value, path)
        elif isinstance(value, dict | list):
            if isinstance(value, dict):
                chars += _check_keys(value, path)
            if values + len(waiting) + len(value) <= max_values:
                items = value.items() if isinstance(value, dict) else enumerate(value)
                waiting.extend((item, depth + 1, (path, key)) for key, item in items)
            else:
                values += len(value)
        else:
            _check_scalar(value, path)
        if depth > MAX_DEPTH:
            raise WireError(f"{_name(path)} lies deeper than {MAX_DEPTH} levels; send flatter data")
        if values + len(waiting) > max_values:
            raise WireError(f"the message holds more than {max_values} values; send fewer at a time")
        if chars > max_chars:
            raise WireError(too_large(max_chars))


def check_text(text: str | bytes) -> None:
    """Raise `WireError` where a parser would drop a second value under one name, or round an integer."""
    try:
        if _is_huge(json.loads(text, object_pairs_hook=_check_pairs, parse_int=_integer)):
            raise WireError(f"the message {_TOO_HUGE}")
    except RecursionError:
        raise WireError(_TOO_DEEP) from None


def _integer(text: str) -> int:
    return int(text) if len(text) <= _DIGITS else _HUGE


def _check_pairs(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for name, value in pairs:
        if name in seen:
            raise WireError(f"{name[:80]} is given twice; send it once")
        if _is_huge(value):
            raise WireError(f"{name[:80]} {_TOO_HUGE}")
        seen.add(name)


def _is_huge(value: object) -> bool:
    if isinstance(value, list):
        return any(_is_huge(one) for one in value)
    return isinstance(value, int) and abs(value) > MAX_INTEGER


def too_large(limit: int) -> str:
    """What to tell the sender of a message over the limit."""
    return f"the message is larger than the {limit} bytes that this server takes; send less, or upload it as a file"


def json_type(value: object) -> str:
    """What kind of JSON value it is, in words."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
    return "an object"


def _check_keys(value: dict[Any, Any], path: _Path) -> int:
    chars = 0
    for key in value:
        if not isinstance(key, str):
            raise WireError(f"{_name(path)} has a key that is no text; use JSON objects")
        chars += len(key)
        _check_text(key, path)
    return chars


def _check_text(value: str, path: _Path) -> None:
    if "\0" in value:
        raise WireError(f"{_name(path)} contains a NUL character; leave it out")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise WireError(f"{_name(path)} contains half a character (a lone surrogate); send whole ones") from error


def _check_scalar(value: object, path: _Path) -> None:
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, int):
        if abs(value) > MAX_INTEGER:
            raise WireError(f"{_name(path)} {_TOO_HUGE}")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise WireError(f"{_name(path)} is not a finite number; send a finite one or null")
    else:
        raise WireError(f"{_name(path)} is no JSON value but {type(value).__name__}; binary data goes in files")


def _name(path: _Path) -> str:
    parts: list[str | int] = []
    while path is not None:
        path, part = path
        parts.append(part)
    if not parts:
        return "the message"
    return ".".join(str(part)[:80] for part in reversed(parts))


async def in_thread(work: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Do this in a thread, one after the other: the loop has its turn between two steps of Python."""
    return await asyncio.get_running_loop().run_in_executor(_threads, partial(work, *args, **options))


async def read_document(body: bytes, *, max_values: int = MAX_VALUES, is_strict: bool = True) -> Any:
    """The value of a document, if strict checked as well; raises `WireError` or `json.JSONDecodeError`."""
    if len(body) <= SMALL_BYTES:
        return _read(body, max_values, is_strict=is_strict)
    has_more = await check_value_count(body, max_values=max_values) > MAX_VALUES
    return await in_thread(_read, body, max_values, is_strict=is_strict, has_more=has_more)


async def check_value_count(body: bytes, *, max_values: int = MAX_VALUES) -> int:
    """How many values a document may hold; `WireError` above `max_values`, and above `MAX_VALUES` without an object."""
    values = 0
    if len(body) > _LARGE_BYTES or may_have_more(body, min(max_values, MAX_VALUES)):
        with _as_wire_error():
            for so_far in counted(body, most=max_values, most_without_object=MAX_VALUES):
                values = so_far
                await asyncio.sleep(0)
    return values


def check_value_count_now(body: bytes, *, max_values: int = MAX_VALUES) -> None:
    """The same at once, for what is no larger than a message."""
    with _as_wire_error():
        check_values(body, most=max_values, most_without_object=MAX_VALUES)


def has_many_values(data: object) -> bool:
    """Whether it takes a moment to look at each value."""
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
    try:
        if not is_strict:
            return json.loads(body, object_pairs_hook=lambda pairs: dict(pairs), parse_int=_integer)
        value = json.loads(body, object_pairs_hook=_checked_dict, parse_int=_checked_integer)
    except RecursionError:
        raise WireError(_TOO_DEEP) from None
    check_json(value, max_chars=len(body), max_values=max_values)
    return value


@contextlib.contextmanager
def _as_wire_error() -> Iterator[None]:
    try:
        yield
    except TooManyValuesError as error:
        raise WireError(f"the message holds {error}; send fewer at a time") from None


async def in_turns(steps: Iterable[T]) -> AsyncIterator[T]:
    """The same steps, with a pause for others now and then."""
    for number, step in enumerate(steps, start=1):
        yield step
        if number % STEPS_PER_TURN == 0:
            await asyncio.sleep(0)
