"""A form with files, read as it arrives: nothing of it is kept, neither in memory nor on this machine's disk."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, NamedTuple

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks


class FormError(Exception):
    """The body is no such form; the message says what to send."""


class Begin(NamedTuple):
    """A part begins: its field's name, and the file's name where it is a file."""

    field: str
    filename: str | None


class Data(NamedTuple):
    """Bytes of the part that has begun."""

    data: bytes


class End(NamedTuple):
    """The part is complete."""


FormEvent = Begin | Data | End


async def form_events(request: Request) -> AsyncIterator[FormEvent]:
    """The parts of a multipart form, in order.

    Raises:
        FormError: the body is none, or breaks off.
    """
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    boundary = options.get(b"boundary")
    if kind != b"multipart/form-data" or not boundary:
        raise FormError("send a form: Content-Type multipart/form-data with a boundary")
    parts = _Parts()
    try:
        parser = MultipartParser(boundary, parts.callbacks())
        async for chunk in request.stream():
            parser.write(chunk)
            while parts.events:
                yield parts.events.popleft()
        parser.finalize()
    except FormParserError as error:
        raise FormError(f"the form cannot be read: {error}") from error
    if not parts.is_whole:
        raise FormError("the form breaks off")


class _Parts:
    """Turns what the parser calls back into events."""

    def __init__(self) -> None:
        self.events: deque[FormEvent] = deque()
        self.is_whole = False
        self._name = bytearray()
        self._value = bytearray()
        self._disposition = b""

    def callbacks(self) -> MultipartCallbacks:
        return {
            "on_part_begin": self._part_begin,
            "on_header_field": lambda data, start, end: self._name.extend(data[start:end]),
            "on_header_value": lambda data, start, end: self._value.extend(data[start:end]),
            "on_header_end": self._header_end,
            "on_headers_finished": self._headers_finished,
            "on_part_data": lambda data, start, end: self.events.append(Data(data[start:end])),
            "on_part_end": lambda: self.events.append(End()),
            "on_end": self._end,
        }

    def _part_begin(self) -> None:
        self._disposition = b""

    def _header_end(self) -> None:
        if self._name.lower() == b"content-disposition":
            self._disposition = bytes(self._value)
        self._name.clear()
        self._value.clear()

    def _headers_finished(self) -> None:
        _, options = parse_options_header(self._disposition)
        filename = options.get(b"filename")
        # Names may be any bytes; those that are no text find their way to the disk all the same.
        name = None if filename is None else filename.decode("utf-8", "surrogateescape")
        self.events.append(Begin(options.get(b"name", b"").decode("utf-8", "replace"), name))

    def _end(self) -> None:
        self.is_whole = True
