"""Servers at an address: how they are reached, and what each request to them carries."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from typing import Any, Final, cast

from agent_core.json_values import TooManyValuesError, counted, may_have_more
from agent_core.mcp.config import McpServer
from agent_core.mcp.incoming import COMPRESSED, MAX_BYTES, MAX_VALUES, TOO_MUCH
from agent_core.mcp.program import McpServerError

_EVENT_END: Final = re.compile(rb"\n\n|\r\r|\r\n\r\n")
_SEAM: Final = 3
"""Bytes of an end that may have come with the part before."""


async def bounded(
    parts: AsyncIterable[bytes], error: type[Exception], *, is_stream: bool, encoding: str
) -> AsyncIterator[bytes]:
    """The parts of a document, or of a stream of events, when it is known how much there is to parse in them.

    Raises:
        error: there is too much, or it is compressed.
    """
    if encoding != "identity":
        raise error(COMPRESSED)
    waiting = bytearray()
    async for part in parts:
        begin = max(0, len(waiting) - _SEAM)
        waiting += part
        ends = [match.end() for match in _EVENT_END.finditer(waiting, begin)] if is_stream else []
        if ends:
            whole = bytes(waiting[: ends[-1]])
            del waiting[: ends[-1]]
            await _check(whole, error)
            yield whole
        if len(waiting) > MAX_BYTES:
            raise error(TOO_MUCH)
    whole = bytes(waiting)
    await _check(whole, error)
    yield whole


async def _check(document: bytes, error: type[Exception]) -> None:
    if may_have_more(document, MAX_VALUES):
        try:
            for _ in counted(document, most=MAX_VALUES):
                await asyncio.sleep(0)
        except TooManyValuesError:
            raise error(TOO_MUCH) from None


READ_SECONDS = 3600.0
"""A stream of events may be silent for long; calls have limits of their own, which are shorter."""

HTTP_ERROR = 400


def headers_of(server: McpServer) -> dict[str, str]:
    """The headers of each request to it, those of its `auth` included."""
    auth = server.auth
    match auth.type:
        case "api_key":
            return {**server.headers, auth.header: auth.key}
        case "bearer":
            return {**server.headers, "Authorization": f"Bearer {auth.token}"}
        case "basic":
            encoded = base64.b64encode(f"{auth.username}:{auth.password}".encode()).decode()
            return {**server.headers, "Authorization": f"Basic {encoded}"}
        case "header":
            return {**server.headers, auth.name: auth.value}
        case "none":
            return dict(server.headers)


def transport_to(server: McpServer, refusals: list[int]) -> Any:
    """The library's own transport for an address; statuses that are errors are added to `refusals`."""
    from httpx2 import AsyncByteStream, AsyncClient, Auth, Response, SSEError, StreamError, Timeout
    from mcp.client.sse import sse_client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    url = server.url or ""
    if not url.startswith(("http://", "https://")):
        raise McpServerError("its address begins with neither http:// nor https://; WebSockets are not supported")
    connect, read = server.connect_seconds, server.sse_read_timeout or READ_SECONDS
    headers = headers_of(server)

    class Body(AsyncByteStream):
        """A response's, bounded; the library takes nothing of another class."""

        def __init__(self, response: Response) -> None:
            self._whole = cast(AsyncByteStream, response.stream)
            self._is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
            self._encoding = response.headers.get("content-encoding", "identity")

        def __aiter__(self) -> AsyncIterator[bytes]:
            error = SSEError if self._is_stream else StreamError
            return bounded(self._whole, error, is_stream=self._is_stream, encoding=self._encoding)

        async def aclose(self) -> None:
            await self._whole.aclose()

    async def note(response: Response) -> None:
        response.stream = Body(response)
        if response.status_code >= HTTP_ERROR:
            refusals.append(response.status_code)

    def made(
        headers: dict[str, str] | None = None, timeout: Timeout | None = None, auth: Auth | None = None
    ) -> AsyncClient:
        # A compressed answer may be a thousand times as large as what comes over the network.
        made = create_mcp_http_client({**(headers or {}), "Accept-Encoding": "identity"}, timeout, auth)
        made.event_hooks = {"response": [note]}
        return made

    if server.kind == "sse":
        return sse_client(url, headers=headers, timeout=connect, sse_read_timeout=read, httpx_client_factory=made)

    @contextlib.asynccontextmanager
    async def streamable() -> AsyncGenerator[Any]:
        async with (
            made(headers=headers, timeout=Timeout(connect, read=read)) as http,
            streamable_http_client(url, http_client=http, max_sse_event_size=MAX_BYTES) as streams,
        ):
            yield streams

    return streamable()
