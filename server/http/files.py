"""Files in and out over HTTP: replies with ranges, tags and an end when nobody listens; forms read as they arrive."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import mimetypes
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from email.utils import formatdate
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self
from urllib.parse import quote

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from agent_core.errors import DrydockError, SandboxError, ToolError
from agent_core.runtime.transfers import Download
from server.errors import broke_off

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

logger = logging.getLogger(__name__)

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)
"""Of at most 18 digits, which no file's size has more of."""


class ByteRange(NamedTuple):
    """Bytes of a file, from `start` to before `end`."""

    start: int
    end: int


class RangeError(Exception):
    """No byte of the file is in the range that was asked for."""


def attachment(name: str) -> str:
    """The header that makes browsers save a reply under this name, whatever is in it (RFC 6266)."""
    plain = "".join(one if " " <= one <= "~" and one not in '"\\%;' else "_" for one in name)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"


def span_of(header: str | None, size: int) -> ByteRange | None:
    """What a Range header asks of a file, None for the whole (several ranges too); `RangeError`: no such bytes."""
    match = _RANGE.fullmatch((header or "").strip().replace(" ", ""))
    if match is None or match.group(1) == match.group(2) == "":
        return None
    first, last = match.groups()
    if not first:
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), min(size, int(last) + 1) if last else size
        if last and int(last) < start:
            return None
    if start >= end:
        raise RangeError
    return ByteRange(start, end)


def file_headers(file: Download) -> dict[str, str]:
    """The headers of a file's reply."""
    kind, encoding = mimetypes.guess_type(file.name)
    return {
        "content-type": kind if kind is not None and encoding is None else "application/octet-stream",
        "content-disposition": attachment(file.name),
        "etag": f'"{file.tag}"',
        "last-modified": formatdate(file.modified / 1e9, usegmt=True),
        "accept-ranges": "bytes",
        "cache-control": "no-cache",
    }


class FileReply(Response):
    """Sends the bytes as they come, calling `touch`; leaves `stack`, which holds the file open, at the end."""

    def __init__(
        self,
        file: Download,
        stack: AsyncExitStack,
        headers: dict[str, str],
        *,
        status: int = 200,
        span: ByteRange | None,
        touch: Callable[[], None],
    ) -> None:
        if span is not None:
            headers = {**headers, "content-length": str(span.end - span.start)}
        super().__init__(None, status, headers)
        if span is None:
            del self.headers["content-length"]
        self._file = file
        self._stack = stack
        self._span = span
        self._touch = touch

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._stack:
            sending = asyncio.create_task(self._send(send), name="file-reply")
            leaving = asyncio.create_task(_gone(receive), name="file-reply-client")
            try:
                await asyncio.wait([sending, leaving], return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (sending, leaving):
                    task.cancel()
                await asyncio.wait([sending, leaving])
            if not sending.cancelled() and not sending.result():
                broke_off.set(True)

    async def _send(self, send: Send) -> bool:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        start, end = self._span or (0, None)
        left = None if end is None else end - start
        parts = self._file.parts(start, end)
        try:
            if left != 0:
                async for part in parts:
                    self._touch()
                    left = None if left is None else left - len(part)
                    await send({"type": "http.response.body", "body": part, "more_body": True})
        except (SandboxError, ToolError) as error:
            # It cannot be said any more but by breaking off, which clients see.
            logger.warning("the download of %r broke off: %s", self._file.name, error)
            return False
        finally:
            await parts.aclose()  # type: ignore[attr-defined]  # it is a generator
        if left:
            logger.warning("the download of %r broke off: the file has become shorter", self._file.name)
            return False
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return True


class StreamReply(StreamingResponse):
    """Sends parts as they are made; one that cannot be made breaks the reply off, which clients see, with a log line.

    Make it with `begun`.
    """

    what = "a reply"

    @classmethod
    async def begun(
        cls, parts: AsyncIterator[bytes], *, what: str, media_type: str, headers: Mapping[str, str] | None = None
    ) -> Self:
        """The reply, once its first part is there; raises what keeps that from being made. The log calls it `what`."""
        first = await anext(parts, b"")

        async def body() -> AsyncIterator[bytes]:
            yield first
            async for part in parts:
                yield part

        reply = cls(body(), media_type=media_type, headers=headers)
        reply.what = what
        return reply

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except DrydockError as error:
            logger.warning("%s broke off: %s", self.what, error)
            broke_off.set(True)


async def _gone(receive: Receive) -> None:
    with suppress(asyncio.CancelledError):
        while (await receive())["type"] != "http.disconnect":
            continue


WHO_ASKS: Final = "Authorization, X-Session-API-Key"
"""The headers that answers depend on, for ``Vary``."""

IN_DOCUMENT: Final[dict[str, Any]] = {
    "parameters": [
        {
            "name": "If-None-Match",
            "in": "header",
            "required": False,
            "schema": {"type": "string"},
            "description": "The `ETag` of an answer that is at hand: the reply is 304 as long as nothing has changed.",
        }
    ]
}
"""OpenAPI's words for a route whose answers have tags, besides the reply 304."""


def is_named(tag: str, header: str | None) -> bool:
    """Whether an ``If-None-Match`` names this tag (with its quotation marks), compared weakly, or any."""
    if header is None:
        return False
    names = [name.strip().removeprefix("W/") for name in header.split(",")]
    return tag in names or names == ["*"]


def tagged(response: Response, request_headers: Mapping[str, str]) -> Response:
    """A whole 200 without a tag gets the tag of its content (RFC 9110, 8.8.3), or is 304 where the client has it."""
    body = getattr(response, "body", None)  # answers in pieces have none
    if response.status_code != 200 or "etag" in response.headers or body is None:
        return response
    tag = f'"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'
    if is_named(tag, request_headers.get("if-none-match")):
        headers = {name: response.headers[name] for name in ("link",) if name in response.headers}
        response = Response(None, 304, headers)
    response.headers["etag"] = tag
    response.headers.append("vary", WHO_ASKS)
    return response


_MAX_CONTENT_TYPE = 1000


class FormError(Exception):
    """The body is no such form; the message says what to send."""


class Begin(NamedTuple):
    """The beginning of a part: its field's name, and the file's name where it is a file."""

    field: str
    filename: str | None


class Data(NamedTuple):
    """Bytes of the part that has begun."""

    data: bytes


class End(NamedTuple):
    """The end of the part."""


FormEvent = Begin | Data | End


async def form_events(request: Request) -> AsyncIterator[FormEvent]:
    """The parts of a multipart form as they arrive, nothing kept; `FormError` where it is none, or breaks off."""
    said = request.headers.get("content-type", "")
    # It is read in a time that grows with the square of its length.
    kind, options = parse_options_header(said if len(said) <= _MAX_CONTENT_TYPE else "")
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
