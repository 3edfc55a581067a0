"""Checks of single values of a runner's answer, of which the forms of answers are made.

A check takes a value and the request's arguments, and returns what may be used. Texts for people and models are cut to
their limit; names, numbers and counts that are over theirs are no answer at all.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Final

from agent_core.tools.truncation import maybe_truncate

Asked = Mapping[str, Any]
Check = Callable[[Any, Asked], Any]
Field = Check | tuple[Check, Any]
"""A check, or a check with what stands for a missing value."""
Limit = int | Callable[[Asked], int]

MAX_PATH: Final = 16 * 1024
"""Characters of a path, in which every byte may have become an escape."""
MAX_NAME: Final = 1024
LAST_SECOND: Final = 253_402_300_799
"""The end of the year 9999: what is later can be shown by nobody."""
_IDENT: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}", re.ASCII)
_PICTURE: Final = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,")
_HASH: Final = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})?", re.ASCII)
_BROKEN: Final = re.compile("[\0\ud800-\udfff]")


class UnexpectedError(ValueError):
    """No runner of ours sends this; the message says what of it, and where."""

    def __init__(self, problem: str, place: str = "") -> None:
        super().__init__(f"{place or 'it'} {problem}")
        self._problem = problem
        self._place = place

    def within(self, field: str) -> UnexpectedError:
        return UnexpectedError(self._problem, f"{field}.{self._place}" if self._place else field)


def limit_of(limit: Limit, asked: Asked) -> int:
    """The limit for this request."""
    return limit if isinstance(limit, int) else limit(asked)


def flag(value: Any, _: Asked) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise UnexpectedError("is neither true nor false")
    return value


def integer(lowest: int, highest: int) -> Check:
    """A whole number in this range."""

    def check(value: Any, _: Asked) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
            raise UnexpectedError(f"is no whole number from {lowest} to {highest}")
        return value

    return check


def moment(last: int) -> Check:
    """A time since 1970, brought into the range from 0 to `last`: files may have any."""

    def check(value: Any, _: Asked) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise UnexpectedError("is no time")
        return min(max(value, 0), last)

    return check


def one_of(choices: Collection[str]) -> Check:
    """One of these words."""

    def check(value: Any, _: Asked) -> str:
        if not isinstance(value, str) or value not in choices:
            raise UnexpectedError(f"is none of {', '.join(choices)}")
        return value

    return check


def asked_for(name: str) -> Check:
    """One of the texts that the request has given in this argument."""

    def check(value: Any, asked: Asked) -> str:
        if not isinstance(value, str) or value not in asked.get(name, ()):
            raise UnexpectedError("was not asked for")
        return value

    return check


def text(limit: Limit) -> Check:
    """A text, cut in its middle where it is over the limit; what no store and no client can carry is replaced."""

    def check(value: Any, asked: Asked) -> str:
        return maybe_truncate(_whole(value), limit_of(limit, asked))

    return check


def whole_text(limit: Limit) -> Check:
    """A text that is no use when it is cut."""

    def check(value: Any, asked: Asked) -> str:
        if isinstance(value, str) and len(value) > (most := limit_of(limit, asked)):
            raise UnexpectedError(f"has more than {most} characters")
        return _whole(value)

    return check


def ident(value: Any, _: Asked) -> str:
    """A word of letters, digits and ``_.:-``."""
    if not isinstance(value, str) or _IDENT.fullmatch(value) is None:
        raise UnexpectedError("is no identifier")
    return value


def commit(value: Any, _: Asked) -> str:
    """The hash of a commit, or nothing."""
    if not isinstance(value, str) or _HASH.fullmatch(value) is None:
        raise UnexpectedError("is no hash of a commit")
    return value


def name(value: Any, _: Asked) -> str:
    """The name of one file: nothing that leads elsewhere."""
    shown = _whole(value)
    if not 0 < len(shown) <= MAX_NAME or shown in (".", "..") or "/" in shown or "\0" in value:
        raise UnexpectedError("is no name of a file")
    return shown


def inner_path(value: Any, _: Asked) -> str:
    """A path that stays below where it begins; empty for that place itself."""
    shown = _whole(value)
    if len(shown) > MAX_PATH or shown.startswith("/") or "\0" in value or ".." in shown.split("/"):
        raise UnexpectedError("is no path below the folder")
    return shown


def picture(limit: int) -> Check:
    """A picture as a data URL, or an empty text: never the address of anything."""

    def check(value: Any, _: Asked) -> str:
        if not isinstance(value, str) or len(value) > limit:
            raise UnexpectedError(f"is no picture of at most {limit} characters")
        if value and (_PICTURE.match(value) is None or not value.isascii() or not value.isprintable() or '"' in value):
            raise UnexpectedError("is no data URL of a picture")
        return value

    return check


def or_none(check: Check) -> Check:
    """Null, or what the check takes."""
    return lambda value, asked: None if value is None else check(value, asked)


def dropped_over(limit: int) -> Check:
    """A text that is left out (None) where it is over the limit."""
    return lambda value, _: None if value is None or len(_text(value)) > limit else _whole(value)


def list_of(check: Check, most: Limit) -> Check:
    """A list of at most so many values."""

    def check_all(value: Any, asked: Asked) -> list[Any]:
        limit = limit_of(most, asked)
        if not isinstance(value, list) or len(value) > limit:
            raise UnexpectedError(f"is no list of at most {limit}")
        return [check(one, asked) for one in value]

    return check_all


def first_of(check: Check, most: int) -> Check:
    """The first values of a list that may have any number of them."""

    def check_some(value: Any, asked: Asked) -> list[Any]:
        if not isinstance(value, list):
            raise UnexpectedError("is no list")
        return [check(one, asked) for one in value[:most]]

    return check_some


def valid_of(check: Check, most: int) -> Check:
    """Those values of a list that pass, at most so many: for lists that are shown as far as they can be."""

    def check_some(value: Any, asked: Asked) -> list[Any]:
        found: list[Any] = []
        for one in value[: 2 * most] if isinstance(value, list) else ():
            with suppress(UnexpectedError):
                found.append(check(one, asked))
        return found[:most]

    return check_some


def otherwise(check: Check, default: Any) -> Check:
    """What passes, or else the default."""

    def check_or(value: Any, asked: Asked) -> Any:
        try:
            return check(value, asked)
        except UnexpectedError:
            return [] if default == [] else default

    return check_or


def record(fields: Mapping[str, Field]) -> Check:
    """An object with these fields; those with a default may be missing, and all others are dropped."""
    checks = {field: one if isinstance(one, tuple) else (one,) for field, one in fields.items()}

    def check(value: Any, asked: Asked) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise UnexpectedError("is no object")
        found: dict[str, Any] = {}
        for field, (look, *default) in checks.items():
            if field in value:
                try:
                    found[field] = look(value[field], asked)
                except UnexpectedError as error:
                    raise error.within(field) from None
            elif default:
                found[field] = [] if default == [[]] else default[0]
            else:
                raise UnexpectedError("is missing", field)
        return found

    return check


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise UnexpectedError("is no text")
    return value


def _whole(value: Any) -> str:
    return without_halves(_text(value))


def without_halves(found: str) -> str:
    """The text without NUL and half characters, which no store and no client can carry."""
    if found.isascii():
        return found.replace("\0", "\ufffd") if "\0" in found else found
    return _BROKEN.sub("\ufffd", found)
