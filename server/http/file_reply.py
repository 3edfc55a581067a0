"""Replies with the bytes of a file or folder of a workspace: names, ranges, tags, and an end when nobody listens."""

from __future__ import annotations

import asyncio
import logging
import mimetypes
import re
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from email.utils import formatdate
from typing import NamedTuple
from urllib.parse import quote

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from agent_core.errors import SandboxError, ToolError
from agent_core.runtime.transfers import Download
from server.errors import broke_off

logger = logging.getLogger(__name__)

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)
"""With more digits than the size of any file it is no form that is known."""


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
    """What a Range header asks of a file; None for the whole: several ranges and unknown forms are passed over.

    Raises:
        RangeError: the file has no such bytes.
    """
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
    """What is said of a file besides its bytes."""
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
    """Sends the bytes as they come; `stack`, which holds the file open, is left when the reply is over.

    `touch` is called with each part: the conversation is in use.
    """

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
        """Send it, until it is sent or the client has gone."""
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
        """Send it; returns whether it was all."""
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


async def _gone(receive: Receive) -> None:
    with suppress(asyncio.CancelledError):
        while (await receive())["type"] != "http.disconnect":
            continue
