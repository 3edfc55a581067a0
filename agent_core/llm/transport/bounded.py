"""Bodies of answers that stay within a bound, whoever reads them, and however they were packed."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, Final

from agent_core.llm.transport.sse import MAX_ANSWER_BYTES

_PIECE_BYTES: Final = 256 * 1024
_MAX_BYTES: Final = MAX_ANSWER_BYTES + 1024 * 1024
"""More than whoever reads an answer takes: who says so in better words says so first."""

_PLAIN: Final = ("", "identity")
_PACKED: Final = ("gzip", "x-gzip", "deflate")


def bound_answers(transport: Any) -> None:
    """Have all transports of this class of httpx give bodies unpacked, in small pieces, and of 65 MiB at most.

    What is larger, or packed in a way that was not asked for (also twice: each time makes it a thousand times as
    large), ends with ``httpx.DecodingError``.
    """
    import httpx

    handle = transport.handle_async_request

    class BoundedBody(httpx.AsyncByteStream):
        def __init__(self, body: Any, encoding: str) -> None:
            self._body = body
            self._encoding = encoding

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async with aclosing(bounded(self._body, self._encoding, httpx.DecodingError)) as pieces:
                async for piece in pieces:
                    yield piece

        async def aclose(self) -> None:
            await self._body.aclose()

    async def handle_bounded(self: Any, request: httpx.Request) -> httpx.Response:
        request.headers["accept-encoding"] = "gzip, deflate"
        response: httpx.Response = await handle(self, request)
        encoding = response.headers.pop("content-encoding", "").strip().lower()
        response.stream = BoundedBody(response.stream, encoding)
        return response

    transport.handle_async_request = handle_bounded


async def bounded(body: Any, encoding: str, error: type[Exception]) -> AsyncGenerator[bytes, None]:
    """A body that came packed in this way, unpacked, in small pieces, and within the bound; else `error` is raised."""
    size = 0
    async with aclosing(_unpacked(body, encoding, error)) as pieces:
        async for piece in pieces:
            size += len(piece)
            if size > _MAX_BYTES:
                raise error(f"it is longer than {_MAX_BYTES // 2**20} MiB")
            yield piece


async def _unpacked(body: Any, encoding: str, error: type[Exception]) -> AsyncGenerator[bytes, None]:
    if encoding in _PLAIN:
        async for piece in body:
            yield piece
        return
    if encoding not in _PACKED:
        raise error(f"it is packed as {encoding[:40]!r}, which nobody asked for")
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        async for piece in body:
            while piece and not unpacker.eof:
                yield unpacker.decompress(piece, _PIECE_BYTES)
                piece = unpacker.unconsumed_tail
        yield unpacker.flush()
    except zlib.error as reason:
        raise error(f"it cannot be unpacked: {reason}") from reason
