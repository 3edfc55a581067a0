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


def written(value: str) -> Iterator[str]:
    """The ways in which a program may write a value, base64 within other text at each of three alignments."""
    yield from (value, json.dumps(value)[1:-1], html.escape(value), repr(value)[1:-1])
    yield from (
        quote(value),
        quote(value, safe=""),
        quote_plus(value),
        re.sub("%..", lambda one: one[0].lower(), quote(value, safe="")),
    )
    raw = value.encode()
    yield from (raw.hex(), raw.hex().upper(), raw.hex(" "), raw.hex(":"))
    for offset in range(3):
        text = b"a" * offset + raw + b"zzzz"
        yield from (base64.b64encode(text).decode(), base64.urlsafe_b64encode(text).decode())


def forms(value: str) -> Iterator[str]:
    """What a search looks for: the same without the ends of base64, and the value backwards."""
    for form in written(value):
        is_base64 = value not in form and form.rstrip("=").replace("-", "+").replace("_", "/")[4:-12] in _encoded(value)
        yield form[4:-12] if is_base64 else form
    yield value[::-1]


def _encoded(value: str) -> str:
    texts = (b"a" * offset + value.encode() + b"zzzz" for offset in range(3))
    return " ".join(base64.b64encode(text).decode() for text in texts)


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
