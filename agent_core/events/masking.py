"""Secrets never reach the log: every string of an event is masked before it is stored (architecture section 4).

A secret is hidden in each form in which it commonly shows: as it is, base64 (at any alignment, standard and
URL-safe, broken into lines or not), URL-encoded, and escaped as JSON, Python and shells do it. Of one that has several
lines, such as a private key, each longer line is a secret as well.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote, quote_plus

MASK = "<secret_hidden>"
"""What stands in the place of a secret (wire-protocol 3.1)."""

MIN_SECRET_LENGTH = 4
"""Shorter values are not masked: they would hide half of every text and protect nothing (agent-core 8.9)."""

SENSITIVE_NAME = re.compile(r"auth|cookie|credential|key|pass|pwd|secret|session|token", re.IGNORECASE)
"""Found in the names of headers and variables whose values are likely to be secrets."""

_MIN_BASE64_CORE = 8

_PROBE = 16
_MIN_BASE64_LINE = 64
"""The command ``base64`` breaks lines at 76 characters, ``openssl`` and mail at 64. So of the first two times `_PROBE`
characters of a form at most one can be torn apart, which tells whether to look for it closely."""

_MARK = "-----"
_MIN_LINE = 16
_MAX_LINES = 200
"""Which lines of a secret are hidden by themselves: programs and tools show files line by line, or in part."""

_JS_UNESCAPED = "!~*'()"


class SecretMasker:
    """Replaces the registered secret values in strings and in JSON data.

    Values can be added at any time and are never forgotten: a rotated secret stays hidden. Longer values are
    replaced first, so that a secret inside another one leaves no rest.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values: dict[str, None] = {}
        self._forms: dict[str, tuple[str, ...]] = {}
        self._initials: frozenset[str] = frozenset()
        self._in_json: tuple[bytes, ...] = ()
        self.longest = 0
        self.add(values)

    def __bool__(self) -> bool:
        return bool(self._forms)

    @property
    def values(self) -> tuple[str, ...]:
        """All values that were ever registered, for another masker that is to hide them too."""
        return tuple(self._values)

    def add(self, values: Iterable[str]) -> None:
        """Mask these values from now on; values shorter than `MIN_SECRET_LENGTH` are left out."""
        given = dict.fromkeys(values)
        self._values.update(given)
        shown = dict.fromkeys(part for value in given for part in (value, *_parts_of(value)))
        forms = {form: probes for value in shown for form, probes in _forms_of(value).items()}
        if forms.keys() <= self._forms.keys():
            return
        forms = {**forms, **self._forms}
        self._forms = {form: forms[form] for form in sorted(forms, key=lambda form: (-len(form), form))}
        self._initials = frozenset(form[0] for form in forms)
        probes = {probe for found in forms.values() for probe in found}
        self._in_json = tuple(
            {json.dumps(probe, ensure_ascii=False)[1:-1].encode("utf-8", "replace") for probe in probes}
        )
        longest = max(map(len, forms))
        self.longest = longest + 2 * (longest // _MIN_BASE64_LINE + 1)

    def text(self, text: str) -> str:
        """`text` with every registered value replaced by `MASK`."""
        # To look for plain strings is far quicker than one pattern of them all, and most texts hold none.
        pattern = self._pattern_for(text)
        return pattern.sub(MASK, text) if pattern else text

    def _pattern_for(self, text: str) -> re.Pattern[str] | None:
        found = tuple(form for form, probes in self._forms.items() if any(probe in text for probe in probes))
        return _pattern(tuple((form, self._forms[form] != (form,)) for form in found)) if found else None

    def may_be_in(self, document: bytes) -> bool:
        """Whether a registered value may stand in a JSON document (UTF-8, only escaped where it must be).

        No is certain. Yes may be wrong, where a value looks like a part of JSON itself.
        """
        return any(probe in document for probe in self._in_json)

    def end_of_settled(self, text: str) -> int:
        """Up to where it is certain what `text` shows when it is masked, whatever may follow it.

        What comes after may be the beginning of a secret, also one that begins with another secret that is whole.
        """
        pattern = self._pattern_for(text)
        hidden = [match.span() for match in pattern.finditer(text)] if pattern else []
        for start in range(max(0, len(text) - self.longest + 1), len(text)):
            # What a secret to the left of it has taken away begins no other one.
            if any(begin < start < end for begin, end in hidden):
                continue
            if text[start] in self._initials and self._may_begin(text[start:]):
                return start
        return len(text)

    def _may_begin(self, text: str) -> bool:
        joined = text.replace("\r", "").replace("\n", "")
        return any(
            form.startswith(text) or (probes != (form,) and form.startswith(joined))
            for form, probes in self._forms.items()
        )

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
        text = self._held + text
        end = self._masker.end_of_settled(text)
        self._held = text[end:]
        return self._masker.text(text[:end])

    def flush(self) -> str:
        """The rest, at the end of the text."""
        out, self._held = self._masker.text(self._held), ""
        return out


def _parts_of(value: str) -> list[str]:
    """What of the value shows by itself: it without the space around it, and the longer lines of one that has several.

    Of a key in PEM it is all lines but the marks around it.
    """
    lines = [line.strip() for line in value.strip().splitlines()[:_MAX_LINES]]
    least = MIN_SECRET_LENGTH if any(line.startswith(_MARK) for line in lines) else _MIN_LINE
    long = [line for line in lines if len(line) >= least and not line.startswith(_MARK)]
    return [value.strip(), *(long if len(lines) > 1 else ())]


def _forms_of(value: str) -> dict[str, tuple[str, ...]]:
    """The forms in which the value shows, and for each the strings one of which is there wherever the form is."""
    if len(value.strip()) < MIN_SECRET_LENGTH:
        return {}
    raw = value.encode("utf-8", "replace")
    plain = {value, quote(raw, safe=""), quote(raw), quote(raw, safe=_JS_UNESCAPED), quote_plus(raw)}
    plain |= {_lower_escapes(form) for form in plain if form != value}
    plain |= {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    # As Python shows a text, and as shells quote one.
    plain |= {repr(value)[1:-1], re.sub(r'(["$`\\])', r"\\\1", value)}
    plain |= {value.replace("'", quoted) for quoted in (r"'\''", "'\"'\"'")}
    alone = base64.b64encode(raw).decode().rstrip("=")
    cores = {alone} if len(alone) < _MIN_BASE64_CORE else set()
    for offset in range(3):
        padded = base64.b64encode(b"\0" * offset + raw).decode().rstrip("=")
        # The first characters mix with whatever precedes the secret, the last ones with whatever follows it.
        start = (0, 2, 3)[offset]
        end = len(padded) if (len(raw) + offset) % 3 == 0 else len(padded) - 1
        core = padded[start:end]
        if len(core) >= _MIN_BASE64_CORE:
            cores.add(core)
    cores |= {core.replace("+", "-").replace("/", "_") for core in cores}
    forms: dict[str, tuple[str, ...]] = {form: (form,) for form in plain | cores if len(form) >= MIN_SECRET_LENGTH}
    for core in cores:
        if len(core) >= 2 * _PROBE:
            forms[core] = (core[:_PROBE], core[_PROBE : 2 * _PROBE])
    return forms


@lru_cache(maxsize=256)
def _pattern(forms: tuple[tuple[str, bool], ...]) -> re.Pattern[str]:
    """Matches these forms, the first of them that fits; those marked so may be broken into lines."""
    return re.compile("|".join((r"(?:\r?\n)?" if lines else "").join(map(re.escape, form)) for form, lines in forms))


def _lower_escapes(quoted: str) -> str:
    return re.sub(r"%[0-9A-F]{2}", lambda match: match.group().lower(), quoted)
