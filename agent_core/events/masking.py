"""Secrets never reach the log: every string of an event is masked before it is stored (architecture section 4).

A secret is hidden in each form in which it commonly shows: as it is, base64 (at any alignment, standard and
URL-safe), URL-encoded, and escaped inside a JSON string.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

MASK = "<secret_hidden>"
"""What stands in the place of a secret (wire-protocol 3.1)."""

MIN_SECRET_LENGTH = 4
"""Shorter values are not masked: they would hide half of every text and protect nothing (agent-core 8.9)."""

_MIN_BASE64_CORE = 8


class SecretMasker:
    """Replaces the registered secret values in strings and in JSON data.

    Values can be added at any time and are never forgotten: a rotated secret stays hidden. Longer values are
    replaced first, so that a secret inside another one leaves no rest.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._forms: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self._initials: frozenset[str] = frozenset()
        self._in_json: tuple[bytes, ...] = ()
        self.longest = 0
        self.add(values)

    def __bool__(self) -> bool:
        return self._pattern is not None

    def add(self, values: Iterable[str]) -> None:
        """Mask these values from now on; values shorter than `MIN_SECRET_LENGTH` are left out."""
        forms = {form for value in values for form in _forms_of(value)}
        if forms <= self._forms:
            return
        self._forms |= forms
        ordered = sorted(self._forms, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, ordered)))
        self._initials = frozenset(form[0] for form in ordered)
        self._in_json = tuple({json.dumps(form, ensure_ascii=False)[1:-1].encode() for form in ordered})
        self.longest = len(ordered[0])

    def text(self, text: str) -> str:
        """`text` with every registered value replaced by `MASK`."""
        return self._pattern.sub(MASK, text) if self._pattern is not None else text

    def may_be_in(self, document: bytes) -> bool:
        """Whether a registered value may stand in a JSON document (UTF-8, only escaped where it must be).

        No is certain. Yes may be wrong, where a value looks like a part of JSON itself.
        """
        return any(form in document for form in self._in_json)

    def start_of_unfinished(self, text: str) -> int:
        """Where the end of `text` begins that may be the beginning of a secret; its length when there is none."""
        for start in range(max(0, len(text) - self.longest + 1), len(text)):
            if text[start] in self._initials and any(form.startswith(text[start:]) for form in self._forms):
                return start
        return len(text)

    def data(self, value: Any) -> Any:
        """JSON data with every string in it masked, at any depth, keys of objects included."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(key): self.data(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.data(item) for item in value]
        return value


class StreamingMask:
    """Masks a text that arrives in pieces: nothing that may be the beginning of a secret is let out early."""

    def __init__(self, masker: SecretMasker) -> None:
        self._masker = masker
        self._held = ""

    def feed(self, text: str) -> str:
        """The part of all text so far that can be shown now and was not shown before."""
        if not self._masker:
            return text
        masked = self._masker.text(self._held + text)
        end = self._masker.start_of_unfinished(masked)
        self._held = masked[end:]
        return masked[:end]

    def flush(self) -> str:
        """The rest, at the end of the text."""
        out, self._held = self._masker.text(self._held), ""
        return out


def _forms_of(value: str) -> set[str]:
    if len(value.strip()) < MIN_SECRET_LENGTH:
        return set()
    raw = value.encode()
    forms = {value, quote(value, safe=""), quote(value), quote_plus(value), json.dumps(value)[1:-1]}
    forms |= {_lower_escapes(form) for form in (quote(value, safe=""), quote_plus(value))}
    for offset in range(3):
        padded = base64.b64encode(b"\0" * offset + raw).decode().rstrip("=")
        # The first characters mix with whatever precedes the secret, the last ones with whatever follows it.
        start = (0, 2, 3)[offset]
        end = len(padded) if (len(raw) + offset) % 3 == 0 else len(padded) - 1
        core = padded[start:end]
        if len(core) >= _MIN_BASE64_CORE:
            forms |= {core, core.replace("+", "-").replace("/", "_")}
    return {form for form in forms if len(form) >= MIN_SECRET_LENGTH}


def _lower_escapes(quoted: str) -> str:
    return re.sub(r"%[0-9A-F]{2}", lambda match: match.group().lower(), quoted)
