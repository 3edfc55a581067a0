"""Text files: finding their encoding, and edits that leave everything else byte for byte."""

from __future__ import annotations

import bisect
import re
from typing import List, NamedTuple, Optional, Pattern, Tuple

_MARKS = (
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
BYTE_ORDER_MARK = "\ufeff"
_SAMPLE = 64 * 1024
_TEXT_CONTROLS = b"\x07\x08\t\n\x0b\x0c\r\x1b"
_CONTROLS = bytes(set(range(32)) - set(_TEXT_CONTROLS)) + b"\x7f"

# Encodings that a file may have when it is not Unicode, with the characters that such a text mostly consists of.
# Japanese ones are strict and come first: kana among the characters are proof enough.
_JAPANESE = ("euc_jp", "shift_jis")
_KANA = re.compile("[\u3040-\u30ff]")
_KANA_SHARE = 0.2
_CANDIDATES = (
    ("euc_kr", re.compile("[\uac00-\ud7a3]")),
    ("gb18030", re.compile("[\u4e00-\u9fff\u3000-\u303f\uff00-\uff60]")),
    ("cp1251", re.compile("[а-яё]")),
    ("koi8_r", re.compile("[а-яё]")),
)
_CONFIDENCE = 0.6
_MOSTLY = 4
_UTF8_WITH_STRAYS = "utf-8 with strays"
"""UTF-8 but for a few bytes, kept as half characters (``surrogateescape``)."""
_STRAYS = re.compile("[\udc80-\udcff]")
_RUN = re.compile(rb"[\x80-\xff]{3,}")


class Decoded(NamedTuple):
    """A file's text and the codec that gives its bytes back; ``mark`` is the byte order mark before it."""

    text: str
    encoding: str
    mark: str = ""


def is_binary(data: bytes) -> bool:
    """True when the bytes are no text in any encoding that the editor would edit."""
    if _mark(data) is not None:
        return False
    sample = data[:_SAMPLE]
    if b"\0" in sample:
        return True
    return bool(sample) and len(sample) - len(sample.translate(None, _CONTROLS)) > len(sample) // 10


def decode(data: bytes) -> Decoded:
    """Decode a text; never fails, since the last resort takes any byte as a character."""
    for encoding in filter(None, (_mark(data), "utf-8", _UTF8_WITH_STRAYS)):
        text = _exactly(data, encoding)
        if text is not None:
            mark = BYTE_ORDER_MARK if text.startswith(BYTE_ORDER_MARK) else ""
            return Decoded(text[len(mark) :], encoding, mark)
    found = _decode_foreign(data) if _RUN.search(data) is not None else None
    if found is not None:  # Western texts have single accented letters, others whole words of such bytes
        return found
    text = _exactly(data, "cp1252")
    return Decoded(text, "cp1252") if text is not None else Decoded(data.decode("latin-1"), "latin-1")


def readable(text: str) -> str:
    """Return a text for showing, with replacement characters for undecodable bytes."""
    return text if text.isascii() else text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def encode(text: str, encoding: str) -> bytes:
    """Encode in the file's own encoding, or as UTF-8 when that cannot represent the text."""
    try:
        if encoding == _UTF8_WITH_STRAYS:
            return text.encode("utf-8", "surrogateescape")
        return text.encode(encoding)
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _mark(data: bytes) -> Optional[str]:
    return next((encoding for mark, encoding in _MARKS if data.startswith(mark)), None)


def _exactly(data: bytes, encoding: str) -> Optional[str]:
    if encoding == _UTF8_WITH_STRAYS:
        text = data.decode("utf-8", "surrogateescape")
        strays = len(_STRAYS.findall(text))
        characters = sum(1 for character in text if character > "\x7f") - strays
        return text if characters >= _MOSTLY * strays else None
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        return None
    return text if encoding == "utf-8" or text.encode(encoding) == data else None


def _decode_foreign(data: bytes) -> Optional[Decoded]:
    best: Optional[Decoded] = None
    confidence = _CONFIDENCE
    for encoding in _JAPANESE:
        text = _exactly(data, encoding)
        if text is not None and _share(_KANA, text) > _KANA_SHARE:
            return Decoded(text, encoding)
    for encoding, usual in _CANDIDATES:
        text = _exactly(data, encoding)
        if text is not None and _share(usual, text) > confidence:
            best, confidence = Decoded(text, encoding), _share(usual, text)
    return best


def _share(usual: Pattern[str], text: str) -> float:
    foreign = sum(1 for character in text if character > "\x7f")
    return len(usual.findall(text)) / max(1, foreign)


class TextFile:
    """One version of a file. Positions and lines refer to :attr:`text`, in which a newline alone ends every line.

    An edit touches the bytes of its own range only: encoding, byte order mark and all other line ends, mixed ones too,
    stay. New lines end as most lines of the replaced range, or else of the file. In a file without any newline,
    carriage returns alone end the lines.
    """

    def __init__(self, data: bytes) -> None:
        self._raw, self.encoding, self._mark = decode(data)
        self._has_returns_only = "\r" in self._raw and "\n" not in self._raw
        self.text = self._raw.replace("\r" if self._has_returns_only else "\r\n", "\n")
        # positions in the text of the line ends that have a carriage return in the file
        self._returns = [found.start() - count for count, found in enumerate(re.finditer("\r\n", self._raw))]

    def lines(self) -> List[str]:
        """The lines without their ends; a final line end begins no further line."""
        lines = self.text.split("\n")
        if not lines[-1]:
            lines.pop()
        return lines

    def replaced(self, start: int, end: int, new: str) -> bytes:
        return self.with_changes([(start, end, new)])

    def with_changes(self, changes: List[Tuple[int, int, str]]) -> bytes:
        """Return the bytes with several ranges replaced: start, end and new text each, in order, without overlaps."""
        parts = [self._mark]
        copied = 0
        for start, end, new in changes:
            raw_start, raw_end = self._raw_position(start), self._raw_position(end)
            parts += [self._raw[copied:raw_start], self._with_line_ends(new, raw_start, raw_end)]
            copied = raw_end
        return encode("".join([*parts, self._raw[copied:]]), self.encoding)

    def line_start(self, number: int) -> int:
        """The position behind the first ``number`` lines."""
        position = 0
        for _ in range(number):
            position = self.text.find("\n", position) + 1
            if position == 0:
                return len(self.text)
        return position

    def _raw_position(self, position: int) -> int:
        return position + bisect.bisect_left(self._returns, position)

    def _with_line_ends(self, new: str, start: int, end: int) -> str:
        if self._has_returns_only:
            return new.replace("\n", "\r")
        inside = self._raw.count("\n", start, end)
        returns = self._raw.count("\r\n", start, end) if inside else len(self._returns)
        has_returns = returns * 2 > (inside or self.text.count("\n"))
        return new.replace("\n", "\r\n") if has_returns and "\r" not in new else new
