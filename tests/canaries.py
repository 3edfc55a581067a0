"""Secrets that are planted to be searched for: in every form in which a program may write one."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterator, Mapping
from urllib.parse import quote, quote_plus


def canary(name: str, *, is_plain: bool = False) -> str:
    """A value of this name that occurs nowhere else; with characters that programs escape unless it is `is_plain`."""
    mark = name.encode().hex()[:12].rjust(12, "0")
    return f"cnry{name.replace('_', '')}{mark}end" if is_plain else f'cnry {name}+/?%&="<{mark}>end'.replace(" ", "~")


def _as_text(value: str) -> Iterator[str]:
    yield from (value, json.dumps(value)[1:-1], html.escape(value), repr(value)[1:-1])
    yield from (quote(value), quote(value, safe=""), quote_plus(value))
    yield re.sub("%..", lambda one: one[0].lower(), quote(value, safe=""))
    raw = value.encode()
    yield from (raw.hex(), raw.hex().upper(), raw.hex(" "), raw.hex(":"))


def _in_base64(value: str) -> Iterator[str]:
    for offset in range(3):
        text = b"a" * offset + value.encode() + b"zzzz"
        yield from (base64.b64encode(text).decode(), base64.urlsafe_b64encode(text).decode())


def written(value: str) -> Iterator[str]:
    """The ways in which a program may write a value, base64 within other text at each of three alignments."""
    yield from _as_text(value)
    yield from _in_base64(value)


def forms(value: str) -> Iterator[str]:
    """What a search looks for: the same without the ends of base64, and the value backwards."""
    yield from _as_text(value)
    yield from (form[4:-12] for form in _in_base64(value))
    yield value[::-1]


def found_in(outputs: Mapping[str, str | bytes], canaries: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Which canary shows in which output, in which form; white space within a form hides it from nobody."""
    searched = {
        place: re.sub(r"\s+", "", text if isinstance(text, str) else text.decode("latin-1"))
        for place, text in outputs.items()
    }
    return [
        (name, place, form)
        for name, value in canaries.items()
        for form in dict.fromkeys(forms(value))
        for place, text in searched.items()
        if re.sub(r"\s+", "", form) in text
    ]
