"""The `mcp` package, imported and connected to servers over their standard streams or over HTTP.

Its import takes a second and 50 MB: in a thread, when first needed, and at the top of no module.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, cast

from agent_core.mcp.config import McpServer
from agent_core.mcp.program import (
    COMPRESSED,
    MAX_BYTES,
    TOO_MUCH,
    UNREADABLE,
    McpServerError,
    OnEnd,
    ProgramPlace,
    ProgramTransport,
    has_too_many_values,
)
from agent_core.version import VERSION

if TYPE_CHECKING:
    from httpx2 import Auth
    from mcp import Client


_EVENT_END: Final = re.compile(rb"\n\n|\r\r|\r\n\r\n")
_SEAM: Final = 3


async def bounded(
    parts: AsyncIterable[bytes], error: type[Exception], *, is_stream: bool, encoding: str
) -> AsyncIterator[bytes]:
    """The parts of a document or of a stream of events; raises `error` when it would take too long to parse."""
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
            if await has_too_many_values(whole):
                raise error(TOO_MUCH)
            yield whole
        if len(waiting) > MAX_BYTES:
            raise error(TOO_MUCH)
    whole = bytes(waiting)
    if await has_too_many_values(whole):
        raise error(TOO_MUCH)
    yield whole


READ_SECONDS = 3600.0
"""Silence of a stream of events; calls have shorter limits of their own."""

HTTP_ERROR = 400


def headers_of(server: McpServer) -> dict[str, str]:
    """The headers of each request to the server, those of its `auth` included."""
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
        case "none" | "oauth2":
            return dict(server.headers)


def transport_to(server: McpServer, refusals: list[int], on_end: OnEnd, auth: Auth | None = None) -> Any:
    """The transport that httpx has for an address, with bounded answers; statuses that are errors go to `refusals`.

    ``on_end(reason)`` is called when its messages end. `auth` shows tokens to the server.
    """
    from httpx2 import AsyncByteStream, AsyncClient, Response, SSEError, StreamError, Timeout
    from mcp.client.sse import sse_client
    from mcp.client.streamable_http import streamable_http_client

    url = server.url or ""
    if not url.startswith(("http://", "https://")):
        raise McpServerError("its address begins with neither http:// nor https://; WebSockets are not supported")
    connect, read = server.connect_seconds, server.sse_read_timeout or READ_SECONDS
    headers = headers_of(server)
    limits = Timeout(connect, read=read)

    class Body(AsyncByteStream):
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
        sent = {**(headers or {}), "Accept-Encoding": "identity"}
        hooks = {"response": [note]}
        return AsyncClient(headers=sent, timeout=timeout or limits, auth=auth, verify=_tls(), event_hooks=hooks)

    @contextlib.asynccontextmanager
    async def transport() -> AsyncGenerator[Any]:
        async with contextlib.AsyncExitStack() as stack:
            if server.kind == "sse":
                streams = sse_client(
                    url, headers=headers, timeout=connect, sse_read_timeout=read, httpx_client_factory=made, auth=auth
                )
            else:
                http = await stack.enter_async_context(made(headers=headers, timeout=limits, auth=auth))
                streams = streamable_http_client(url, http_client=http, max_sse_event_size=MAX_BYTES)
            incoming, outgoing = await stack.enter_async_context(streams)
            yield _Messages(incoming, on_end), outgoing

    return transport()


def is_refused_session(error: BaseException) -> bool:
    """Whether an HTTP server refused the request unseen because it does not know the session (any more)."""
    from mcp import MCPError

    codes = (-32600, -32000, -32001)
    return isinstance(error, MCPError) and error.code in codes and "session" in error.message.lower()


def is_closed(error: BaseException) -> bool:
    """Whether the connection ended while an answer was waited for."""
    from anyio import BrokenResourceError, ClosedResourceError
    from mcp import MCPError
    from mcp.types import CONNECTION_CLOSED

    cause = cause_of(error)
    if isinstance(cause, BrokenResourceError | ClosedResourceError):
        return True
    words = ("closed", "ended", "failed")  # servers use the same code for errors of their own
    return (
        isinstance(cause, MCPError)
        and cause.code == CONNECTION_CLOSED
        and any(word in cause.message.lower() for word in words)
    )


def was_reached(error: BaseException) -> bool:
    """Whether a server at the address may have got the request."""
    from httpx2 import ConnectError, ConnectTimeout

    return not isinstance(cause_of(error), ConnectError | ConnectTimeout)


def cause_of(error: BaseException) -> BaseException:
    """The first error in nested groups of them."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def reason_of(error: BaseException) -> str:
    """What went wrong, in words."""
    from httpx2 import ConnectError, HTTPStatusError, RemoteProtocolError, SSEError, TimeoutException
    from mcp import MCPError

    cause = cause_of(error)
    match cause:
        case McpServerError():
            return str(cause)
        case HTTPStatusError():
            status = cause.response.status_code
            return f"it answered with the HTTP status {status}{advice_on(status)}"
        case ConnectError():
            return "nothing answers at its address"
        case TimeoutException():
            return "it took too long to answer"
        case RemoteProtocolError():
            return "what is at its address does not speak HTTP; check the address"
        case SSEError():
            return "what is at its address sends no stream of events; check the address and the transport"
        case MCPError(code=-32700):  # whose text would be that of our own parser
            return next((why for why in (TOO_MUCH, COMPRESSED) if why in cause.message), UNREADABLE)
        case MCPError():
            return f"it answered with an error: {' '.join(cause.message.split())[:500]}"
        case _:
            return f"{type(cause).__name__}: {' '.join(str(cause).split())[:300]}".rstrip(": ")


def advice_on(status: int) -> str:
    """What to do about an HTTP status; begins with a semicolon, empty where there is nothing to say."""
    if status in (401, 403):
        return "; check its key, or what else it wants to be shown"
    return "; check its address" if status in (404, 405) else ""


ENDED = "it ended the connection"


class _Messages:
    def __init__(self, stream: Any, on_end: OnEnd) -> None:
        self._stream = stream
        self._on_end = on_end

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> _Messages:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            self._on_end(ENDED)
            raise

    async def __aenter__(self) -> _Messages:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *details: Any) -> Any:
        return await self._stream.__aexit__(*details)


MAX_PAGES = 50
MAX_TOOLS = 1_000

_threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mcp-import")


def _import() -> None:
    import referencing.jsonschema  # noqa: F401 - only to be there

    # What goes wrong with a server is told to the user, once; these would write a traceback for each broken message.
    for name in ("mcp.client", "mcp.shared", "client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # a line for each request, with all that is in its address
    with contextlib.suppress(OSError):  # who connects to an address is told
        _tls()


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    """One for all connections: to make one reads all certificates, which takes longer than all else."""
    from httpx2 import create_ssl_context

    return create_ssl_context()


async def load() -> None:
    """Import the package, without stopping the loop."""
    await asyncio.get_running_loop().run_in_executor(_threads, _import)


@contextlib.asynccontextmanager
async def connected(
    server: McpServer,
    programs: ProgramPlace,
    *,
    on_change: Callable[[], None],
    on_end: OnEnd,
    auth: Auth | None = None,
) -> AsyncIterator[Client]:
    """A client of the server (whose references are expanded), with its handshake done; `load` was called.

    `on_change` is called when the server's tools have changed, `on_end` when the connection is over; `auth` shows
    tokens to an address. Enter and leave it in the same task. Raises what `reason_of` has words for.
    """
    from mcp import MCPError
    from mcp.types import UNSUPPORTED_PROTOCOL_VERSION

    async with contextlib.AsyncExitStack() as stack:
        try:
            # The handshake that nearly all servers know comes first: some of them wait long before they refuse another.
            client = await stack.enter_async_context(_client(server, programs, "legacy", on_change, on_end, auth))
        except (Exception, BaseExceptionGroup) as error:
            cause = cause_of(error)
            if not isinstance(cause, MCPError) or cause.code != UNSUPPORTED_PROTOCOL_VERSION:
                raise
            client = await stack.enter_async_context(_client(server, programs, "auto", on_change, on_end, auth))
        yield client


@contextlib.asynccontextmanager
async def _client(
    server: McpServer,
    programs: ProgramPlace,
    mode: str,
    on_change: Callable[[], None],
    on_end: OnEnd,
    auth: Auth | None,
) -> AsyncIterator[Client]:
    from mcp import Client, MCPError
    from mcp.types import Implementation, ToolListChangedNotification

    async def on_message(message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            on_change()

    reasons: list[str] = []
    refusals: list[int] = []

    def ended(reason: str) -> None:
        reasons.append(reason)
        on_end(reason)

    program = ProgramTransport(server, programs, ended) if server.kind == "stdio" else None
    client = Client(
        program or transport_to(server, refusals, ended, auth),
        mode=mode,
        message_handler=on_message,
        client_info=Implementation(name="drydock", version=VERSION),
        cache=None,
    )
    try:
        await client.__aenter__()
    except Exception as error:
        if refusals and isinstance(cause_of(error), MCPError):  # the MCP SDK keeps the status to itself
            raise McpServerError(f"it answered with the HTTP status {refusals[-1]}{advice_on(refusals[-1])}") from error
        if program is None or not is_closed(error):
            raise
        raise McpServerError((reasons or ["it ended"])[0] + await program.last_words()) from error
    try:
        yield client
    except McpServerError as error:
        if program is None or error.__cause__ is None or not is_closed(error.__cause__):
            raise
        raise McpServerError((reasons or ["it ended"])[0] + await program.last_words()) from error
    finally:
        await client.__aexit__(None, None, None)


async def all_tools(client: Client) -> list[Any]:
    """All tools that the server lists, page by page, up to `MAX_TOOLS`; raises `McpServerError`."""
    found: list[Any] = []
    cursor: str | None = None
    try:
        for _ in range(MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            found.extend(page.tools)
            cursor = page.next_cursor
            if cursor is None or len(found) >= MAX_TOOLS:
                break
    except Exception as error:
        raise McpServerError(f"it did not list its tools: {reason_of(error)}") from error
    return found[:MAX_TOOLS]


async def follow_changes(client: Client, on_change: Callable[[], None]) -> None:
    """Call `on_change` for each change, where the protocol's version wants changes to be asked for; else return."""
    from mcp import MCPError
    from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost

    with contextlib.suppress(ListenNotSupportedError, SubscriptionLost, MCPError):
        async with client.listen(tools_list_changed=True) as changes:
            async for _ in changes:
                on_change()
