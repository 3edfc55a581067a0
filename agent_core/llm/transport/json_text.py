"""JSON that every server takes."""

from __future__ import annotations

import json
from typing import Any

import orjson


def encoded(value: Any) -> bytes:
    """The value as JSON; half characters (lone surrogates), which no server takes, become question marks."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def canonical(value: Any) -> bytes:
    """The value as JSON that is the same for equal values: the keys of objects stand in order."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return json.dumps(value, ensure_ascii=False, sort_keys=True).encode("utf-8", "replace")


def whole_characters(text: str) -> str:
    """The text with halves of characters that follow each other made whole; single ones become U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def is_half(character: str) -> bool:
    """Whether it is the first half of a character (a high surrogate), as a stream may be cut between both."""
    return "\ud800" <= character <= "\udbff"
