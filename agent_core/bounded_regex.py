"""Regular expressions that others have written: an answer takes a bounded time, however bad the expression is."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Any, Final, Literal

MATCH_SECONDS: Final = 0.05
MAX_PATTERN_CHARS: Final = 1_000

_CHECK_SECONDS: Final = 0.5
_NAME_CHARS: Final = 200
_NAMES: Final = ("a" * 63 + "-", "ab_" * 21 + "-")
"""Names on which an expression that tries each way to share out a text shows itself."""


class SlowPatternError(ValueError):
    """An expression takes longer than `MATCH_SECONDS`, so nobody knows whether it matches."""

    def __init__(self, pattern: str) -> None:
        super().__init__(
            f"the regular expression {pattern[:100]!r} takes too long; repeat nothing that can be read in several ways,"
            " such as (a|aa)+"
        )


@cache
def _regex() -> Any:
    """The library, which is loaded when the first of such expressions is: it takes more than a megabyte."""
    import regex

    return regex


def check_pattern(pattern: str) -> None:
    """`ValueError`: it is no regular expression as Python reads them, or longer than `MAX_PATTERN_CHARS`."""
    if len(pattern) > MAX_PATTERN_CHARS:
        raise ValueError(f"a regular expression has at most {MAX_PATTERN_CHARS} characters; {pattern[:40]!r}… has more")
    try:
        re.compile(pattern)  # its dialect, without what `regex` has besides
        _regex().compile(pattern)
    except (re.error, _regex().error, RecursionError, OverflowError) as error:
        raise ValueError(f"{pattern[:100]!r} is no regular expression: {error}") from None


def refuse_slow(patterns: Iterable[str]) -> None:
    """Raise `SlowPatternError` for the first of these expressions that takes too long for names, or all together."""
    ends = time.monotonic() + _CHECK_SECONDS
    for pattern in patterns:
        for name in _NAMES:
            does_match(pattern, name)
        if time.monotonic() > ends:
            raise SlowPatternError(pattern)


def does_match(pattern: str, text: str, place: Literal["match", "fullmatch", "search"] = "match") -> bool:
    """Whether an expression matches; `place` is the method of `re` that is meant.

    Raises `SlowPatternError`, and `ValueError` where it is none.
    """
    answer = _answer if len(text) <= _NAME_CHARS else _answer.__wrapped__
    try:
        found: bool | None = answer(pattern, text, place)
    except (_regex().error, RecursionError, OverflowError) as error:
        raise ValueError(f"{pattern[:100]!r} is no regular expression: {error}") from None
    if found is None:
        raise SlowPatternError(pattern)
    return found


@lru_cache(maxsize=4096)
def _answer(pattern: str, text: str, place: Literal["match", "fullmatch", "search"]) -> bool | None:
    """None: that took too long; it is not tried again."""
    try:
        return getattr(_regex(), place)(pattern, text, timeout=MATCH_SECONDS) is not None
    except TimeoutError:
        return None
