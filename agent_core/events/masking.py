"""Secrets never reach the log: every string of an event is masked before it is stored.

A secret is hidden as it is, in base64 (at any alignment, standard and URL-safe), in hexadecimal (as dumps, programs
and escapes write bytes), and escaped as JSON, HTML, Python and shells do it; all of these also torn apart by line ends
and other white space, which may be escaped themselves, and with any of their characters percent-encoded. Of one with
several lines, such as a private key, each longer line is a secret as well.

Plain strings are looked for in a text made plain first (no white space, nothing percent-encoded, hexadecimal digits
only), which is quick. Only where one was found a pattern tells where it stands.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import unquote, unquote_plus, unquote_to_bytes, urlsplit, urlunsplit

MASK = "<secret_hidden>"

EXPOSE_SECRETS = "expose_secrets"
"""Key of a serialisation context: ``model_dump(context={EXPOSE_SECRETS: True})`` writes secrets in plain text."""

DUMP_MASK = "**********"
"""Stands for a secret in the JSON of a configuration, and for none where that is read back."""

MIN_SECRET_LENGTH = 4
"""Shorter values are not masked: they would hide half of every text and protect nothing."""

_MIN_TOKEN = 16
"""A name of so many characters in an address, without a password, is a token."""

SENSITIVE_NAME = re.compile(r"auth|cookie|credential|key|pass|pwd|secret|session|token", re.IGNORECASE)
"""Found in the names of headers and variables whose values are likely to be secrets."""


def address_with(address: str, change: Callable[[str, str], str]) -> str:
    """The address with each secret in it as `change` makes it of its place and itself.

    Secrets are its password, a long name where a password is none (that is how tokens are given), and the parameters
    whose names tell of secrets. What is no address has none.
    """
    try:
        parts = urlsplit(address)
    except ValueError:
        return address
    user, at, host = parts.netloc.rpartition("@")
    name, colon, password = user.partition(":")
    if password:
        password = change("password", password)
    elif len(name) >= _MIN_TOKEN or name == DUMP_MASK:
        name = change("name", name)
    pairs = [one.partition("=") for one in parts.query.split("&")]
    query = "&".join(
        f"{key}={change(f'query.{number}', value)}"
        if value and SENSITIVE_NAME.search(unquote(key))
        else f"{key}{equals}{value}"
        for number, (key, equals, value) in enumerate(pairs)
    )
    netloc = f"{name}{colon}{password}{at}{host}"
    if (netloc, query) == (parts.netloc, parts.query):
        return address
    return urlunsplit(parts._replace(netloc=netloc, query=query))


def secrets_in_address(address: str) -> list[str]:
    """Every secret in an address, as it is written and as it is sent."""
    found: list[str] = []

    def note(place: str, secret: str) -> str:
        found.append(secret)
        return secret

    address_with(address, note)
    return [form for text in found for form in dict.fromkeys((text, unquote_plus(text))) if form]


_MIN_BASE64_CORE = 8

_MIN_TORN = 8
"""Shorter forms are hidden in one piece only: torn apart they would match by chance."""

_MAX_WHITE = 100
_MAX_BETWEEN_BYTES = 8
"""So much may stand between two characters, or two bytes in hexadecimal, of one secret."""

_WHITE = " \t\r\n"
_WHITE_RUN = f"[{_WHITE}]{{0,{_MAX_WHITE}}}"
_MAX_ENCODED_WHITE = 2
_MANY = 48
_MAX_ENCODED = 512
"""Of longer forms only what is no letter and no digit may be percent-encoded: their patterns would take a second."""
_ESCAPED_WHITE = r"\\(?:[nrt]|\r?\n)"
_ESCAPED_WHITE_RUN = rf"(?:[{_WHITE}]|{_ESCAPED_WHITE}){{0,{_MAX_WHITE}}}"
_ESCAPED_WHITES = re.compile(_ESCAPED_WHITE)
_TOO_MUCH_WHITE = re.compile(rf"(?:[{_WHITE}]|{_ESCAPED_WHITE}){{{_MAX_WHITE + 1},}}")
_ESCAPE_BEGUN = re.compile(r"\\\r?\Z")
_ENCODED_WHITE_RUN = rf"{_WHITE_RUN}(?:%(?:20|0[9aAdD]){_WHITE_RUN}){{0,{_MAX_ENCODED_WHITE}}}"

_HEX_DIGITS = "0123456789abcdefABCDEF"
_TO_DIGITS = bytes.maketrans(b"ABCDEF", b"abcdef")
_NO_DIGITS = bytes(set(range(256)) - set(_HEX_DIGITS.encode("ascii")))
# No control characters: as JSON escapes them they would be digits.
_BETWEEN_BYTES = rf"[^0-9a-fA-F\x00-\x08\x0b\x0c\x0e-\x1f]{{0,{_MAX_BETWEEN_BYTES}}}"
_HEX_MARKS = ("", "0", "00")
"""The digits before each byte: of a dump, of 0x6f, of \\u006f."""
_MAX_HEX_BYTES = 1024
"""Of longer values the lines are found in hexadecimal, as each of them is a secret."""

_HEAD = 4
_PERCENT_ENCODED = re.compile(r"%([0-9a-fA-F]{2})|(.)", re.DOTALL)
_ENCODED = re.compile("%[0-9a-fA-F]{2}")
_NO_END_OF_ENCODED = "(?<!%(?=[0-9a-fA-F]{2}))(?<!%[0-9a-fA-F](?=[0-9a-fA-F]))"
_ENCODING_BEGUN = re.compile(r"%[0-9a-fA-F]?\Z")
_ESCAPED_WHITE_IN_JSON = re.compile(rb"\0(?:[nrt]| {1,2})")
_ENCODED_BYTES = re.compile(rb"%[0-9a-fA-F]{2}")
_IN_JSON_AS_IT_IS = re.compile(r'[^\\"\x00-\x1f]+')

_MARK = "-----"
_MIN_LINE = 16
_MAX_LINES = 200
"""Which lines of a secret are hidden by themselves: programs and tools show files line by line, or in part."""


class _Form(NamedTuple):
    """A form of a secret: its characters without white space, and how it shows where it may not be torn apart."""

    core: str
    whole: str = ""


class _Hex(NamedTuple):
    """A form of a secret in hexadecimal: all its digits, and those before each of its bytes."""

    digits: str
    mark: str


class SecretMasker:
    """Replaces the registered secret values of at least `MIN_SECRET_LENGTH` in strings and in JSON data.

    Values are never forgotten: a rotated secret stays hidden. Longer ones are replaced first, so that a secret inside
    another one leaves no rest.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values: dict[str, None] = {}
        self._forms: tuple[_Form, ...] = ()
        self._hex: tuple[_Hex, ...] = ()
        self._in_json: tuple[bytes, ...] = ()
        self._in_digits: tuple[bytes, ...] = ()
        self._beginnings = _Beginnings(())
        self._hex_beginnings = _Beginnings(())
        self.add(values)

    def __bool__(self) -> bool:
        return bool(self._forms)

    @property
    def values(self) -> tuple[str, ...]:
        return tuple(self._values)

    def add(self, values: Iterable[str]) -> None:
        secrets = dict.fromkeys(values)
        self._values.update(secrets)
        shown = dict.fromkeys(part for value in secrets for part in _parts_of(value) if len(part) >= MIN_SECRET_LENGTH)
        forms = {form for value in shown for form in _forms_of(value)}
        if forms <= set(self._forms):
            return
        forms.update(self._forms)
        digits = {form for value in shown for form in _hex_of(value)} | set(self._hex)
        self._forms = tuple(sorted(forms, key=lambda form: (-len(form.core), form)))
        self._hex = tuple(sorted(digits, key=lambda form: (-len(form.digits), form)))
        self._in_json = tuple({_always_in_json(form.core) for form in forms})
        self._in_digits = tuple({form.digits.encode("ascii") for form in digits})
        self._beginnings = _Beginnings({form.core.encode("utf-8", "replace") for form in forms})
        self._hex_beginnings = _Beginnings(self._in_digits)

    def text(self, text: str) -> str:
        pattern = self._pattern_for(text) if self else None
        return pattern.sub(MASK, text) if pattern else text

    def _pattern_for(self, text: str) -> re.Pattern[str] | None:
        joined = _joined(text)
        plain = _joined(unquote(text, errors="replace")) if _ENCODED.search(text) else joined
        bare = _joined(_ESCAPED_WHITES.sub("", text)) if "\\" in text else joined
        found = tuple(
            # For short forms it is always worth the making of a pattern to look for encoded ones as well.
            (
                form,
                plain is not joined and (len(form.core) < _MANY or plain.count(form.core) > joined.count(form.core)),
            )
            for form in self._forms
            if form.core in joined or form.core in plain or (form.core in bare and "\\" not in form.core)
        )
        digits = text.encode("utf-8", "replace").translate(_TO_DIGITS, _NO_DIGITS).decode("ascii")
        found_hex = tuple(form for form in self._hex if form.digits in digits)
        if not found and not found_hex:
            return None
        between = _WHITE_RUN if joined is not text else ""
        return _pattern(found, found_hex, between if len(bare) == len(joined) else _ESCAPED_WHITE_RUN)

    def may_be_in(self, document: bytes) -> bool:
        """Whether a value may stand in a JSON document (UTF-8, minimally escaped). No is certain, yes is not."""
        if not self:
            return False
        digits = document.translate(_TO_DIGITS, _NO_DIGITS)
        if any(form in digits for form in self._in_digits):
            return True
        spaced = document.replace(b"\\\\", b"\0") if b"\\\\" in document else document
        for white in (b"\\n", b"\\t", b"\\r"):
            spaced = spaced.replace(white, b" ")
        joined = spaced.translate(None, b" ")
        if any(piece in joined for piece in self._in_json):
            return True
        if b"\0" in spaced:  # a backslash of the text's own, and what it escapes there
            bare = _ESCAPED_WHITE_IN_JSON.sub(b"", spaced).translate(None, b" ")
            if any(piece in bare for piece in self._in_json):
                return True
        if _ENCODED_BYTES.search(spaced) is None:
            return False
        plain = unquote_to_bytes(spaced).translate(None, _WHITE.encode("ascii"))
        return any(piece in plain for piece in self._in_json)

    def end_of_settled(self, text: str) -> int:
        """Up to where it is certain what `text` shows when it is masked, whatever may follow it."""
        pattern = self._pattern_for(text)
        hidden = [match.span() for match in pattern.finditer(text)] if pattern else []
        # What a secret to the left of it has taken away begins no other one.
        return min(
            (start for start in self._possible_starts(text) if not any(begin < start < end for begin, end in hidden)),
            default=len(text),
        )

    def _possible_starts(self, text: str) -> Iterator[int]:
        longest = self._beginnings.longest
        tail = _tail(text, longest, _MAX_WHITE)
        yield from self._beginnings.in_units([(text[place].encode("utf-8", "replace"), place) for place in tail])
        if "\\" in text:
            tail = _tail(text, longest * 3, _MAX_WHITE)
            first = tail[0] if tail else len(text)
            first = max((one.end() for one in _TOO_MUCH_WHITE.finditer(text, first)), default=first)
            escaped = {place for one in _ESCAPED_WHITES.finditer(text, first) for place in range(*one.span())}
            begun = _ESCAPE_BEGUN.search(text)
            end = begun.start() if begun else len(text)
            units = [
                (text[place].encode("utf-8", "replace"), place)
                for place in tail
                if place not in escaped and first <= place < end
            ]
            yield from self._beginnings.in_units(units)
        begun = _ENCODING_BEGUN.search(text)
        if begun:  # an encoded character that breaks off may be any
            yield begun.start()
        if begun or _ENCODED.search(text, tail[0] if tail else 0):
            tail = _tail(text, longest * 3 * (1 + _MAX_ENCODED_WHITE), _MAX_WHITE)
            found = _PERCENT_ENCODED.finditer(text, tail[0] if tail else 0, begun.start() if begun else len(text))
            decoded = (
                (bytes.fromhex(one[1]) if one[1] else one[2].encode("utf-8", "replace"), one.start()) for one in found
            )
            white = _WHITE.encode("ascii")
            yield from self._beginnings.in_units([unit for unit in decoded if unit[0] not in white])
        digits = _tail(text, self._hex_beginnings.longest, _MAX_BETWEEN_BYTES, in_hex=True)
        yield from self._hex_beginnings.in_units([(text[place].lower().encode("ascii"), place) for place in digits])

    def data(self, value: Any) -> Any:
        """JSON data with every string masked, keys of objects included."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(key): self.data(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.data(item) for item in value]
        return value


class _Beginnings:
    """Tells whether bytes are the beginning of one of some forms; quick also with thousands of them."""

    def __init__(self, forms: Iterable[bytes]) -> None:
        self.longest = 0
        self._by_head: dict[bytes, list[bytes]] = {}
        self._short: set[bytes] = set()
        for form in forms:
            self.longest = max(self.longest, len(form))
            self._by_head.setdefault(form[:_HEAD], []).append(form)
            self._short.update(form[:length] for length in range(1, _HEAD))

    def in_units(self, units: list[tuple[bytes, int]]) -> Iterator[int]:
        view = b"".join(unit for unit, _ in units)
        at = 0
        for unit, place in units:
            head = view[at : at + _HEAD]
            if len(head) < _HEAD:
                if head in self._short:
                    yield place
            elif head in self._by_head:
                rest = view[at:]
                if any(form.startswith(rest) for form in self._by_head[head]):
                    yield place
            at += len(unit)


class StreamingMask:
    """Masks a text that arrives in pieces: nothing that may be the beginning of a secret is let out early."""

    def __init__(self, masker: SecretMasker) -> None:
        self._masker = masker
        self._buffered = ""

    def feed(self, text: str) -> str:
        """The part of all text so far that can be shown now and was not shown before."""
        if not self._masker:
            return text
        text = self._buffered + text
        end = self._masker.end_of_settled(text)
        self._buffered = text[end:]
        return self._masker.text(text[:end])

    def flush(self) -> str:
        out, self._buffered = self._masker.text(self._buffered), ""
        return out


def _parts_of(value: str) -> list[str]:
    """The value without the space around it, and its longer lines; of a key in PEM all but the marks around it."""
    lines = [line.strip() for line in value.strip().splitlines()[:_MAX_LINES]]
    least = MIN_SECRET_LENGTH if any(line.startswith(_MARK) for line in lines) else _MIN_LINE
    long = [line for line in lines if len(line) >= least and not line.startswith(_MARK)]
    return [value.strip(_WHITE), value.strip(), *(long if len(lines) > 1 else ())]


def _forms_of(value: str) -> Iterator[_Form]:
    raw = value.encode("utf-8", "replace")
    plain = {value, value.replace(" ", "+"), json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    # As Python shows a text, and as shells quote one.
    plain |= {repr(value)[1:-1], re.sub(r'(["$`\\])', r"\\\1", value)}
    plain |= {repr(raw)[2:-1], re.sub(r"([^\w@%+=:,./-])", r"\\\1", value)}
    plain |= {value.replace("'", quoted) for quoted in (r"'\''", "'\"'\"'")}
    plain |= {html.escape(value), html.escape(value, quote=False), json.dumps(json.dumps(value)[1:-1])[1:-1]}
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
    for form in plain | cores:
        core = _joined(form)
        yield _Form(core) if len(core) >= _MIN_TORN else _Form(core, form)


def _hex_of(value: str) -> list[_Hex]:
    raw = value.encode("utf-8", "replace")
    marks = () if len(raw) > _MAX_HEX_BYTES else _HEX_MARKS if len(raw) >= _MIN_TORN else _HEX_MARKS[:1]
    return [_Hex(mark.join(f"{byte:02x}" for byte in raw), mark) for mark in marks]


def _joined(text: str) -> str:
    for white in _WHITE:
        if white in text:
            text = text.replace(white, "")
    return text


def _tail(text: str, most: int, most_between: int, *, in_hex: bool = False) -> list[int]:
    """The places of at most `most` last characters that count, with at most `most_between` others in between.

    Those are hexadecimal digits, or else all but white space.
    """
    found: list[int] = []
    others = 0
    for place in range(len(text) - 1, -1, -1):
        if text[place] in _HEX_DIGITS if in_hex else text[place] not in _WHITE:
            found.append(place)
            others = 0
            if len(found) >= most:
                break
        else:
            others += 1
            if others > most_between:
                break
    return found[::-1]


def _always_in_json(core: str) -> bytes:
    """The longest piece of a form that JSON writes as it is; nothing, which is in all, where no piece says enough."""
    piece = max(_IN_JSON_AS_IT_IS.findall(core), key=len, default="")
    return piece.encode("utf-8", "replace") if len(piece) >= MIN_SECRET_LENGTH else b""


@lru_cache(maxsize=256)
def _pattern(forms: tuple[tuple[_Form, bool], ...], in_hex: tuple[_Hex, ...], between: str) -> re.Pattern[str]:
    """Matches the longest of these forms that fits; those marked so may be percent-encoded."""
    found = [(len(form.core), _of_form(form, between, encoded)) for form, encoded in forms]
    found += [(len(form.digits), _of_hex(form)) for form in in_hex]
    found.sort(key=lambda one: -one[0])
    # Most places are passed over by their first character.
    first = {form.core[0] for form, _ in forms} | {
        char for form in in_hex for char in form.digits[0] + form.digits[0].upper()
    }
    initials = "".join(map(re.escape, sorted(first | {"%"})))
    return re.compile(f"(?=[{initials}])(?:{'|'.join(pattern for _, pattern in found)})")


def _of_form(form: _Form, between: str, encoded: bool) -> str:
    shown = form.whole or form.core
    if between == _ESCAPED_WHITE_RUN and "\\" in shown:
        between = _WHITE_RUN
    plain = ("" if form.whole else between).join(map(re.escape, shown))
    if not encoded:
        return plain
    if len(shown) > _MAX_ENCODED:
        units = [re.escape(char) if char.isalnum() else _of_char(char) for char in shown]
    else:
        units = list(map(_of_char, shown))
    # Of a percent sign that would encode what follows only the encoded one stands for itself.
    for found in re.finditer(r"%(?=[0-9a-fA-F]{0,1}\Z|[0-9a-fA-F]{2})", shown):
        units[found.start()] = "%25"
    before = _NO_END_OF_ENCODED if shown[0] in _HEX_DIGITS else ""
    return f"{plain}|{before}{('' if form.whole else _ENCODED_WHITE_RUN).join(units)}"


@lru_cache(maxsize=1024)
def _of_char(char: str) -> str:
    # Flags within a pattern would take ten times as long to read.
    either = (
        f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in char.encode("utf-8", "replace").hex()
    )
    pairs = zip(either, either, strict=True)
    return f"(?:{re.escape(char)}|{''.join(f'%{first}{second}' for first, second in pairs)})"


def _of_hex(form: _Hex) -> str:
    width = 2 + len(form.mark)
    pairs = [form.digits[start : start + 2] for start in range(0, len(form.digits), width)]
    before = {"": "", "0": "0[xX]", "00": "00"}[form.mark]
    if len(pairs) < _MIN_TORN:
        return f"(?i:{form.digits})"
    within = f"[{_WHITE}]{{0,{_MAX_BETWEEN_BYTES}}}"
    return f"(?i:{(_BETWEEN_BYTES + before).join(within.join(pair) for pair in pairs)})"
