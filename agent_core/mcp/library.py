"""The protocol's client library, imported and connected.

It takes a second and 50 MB to import, so that happens in a thread, when the first conversation with a server needs it;
this folder is its home, and nothing here imports it at the top of a module.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from agent_core.mcp.addresses import transport_to
from agent_core.mcp.config import McpServer
from agent_core.mcp.failures import advice_on, cause_of, is_closed, reason_of
from agent_core.mcp.incoming import read_message
from agent_core.mcp.program import McpServerError, OnEnd, ProgramPlace, ProgramTransport
from agent_core.version import VERSION

if TYPE_CHECKING:
    from mcp import Client

ENDED = "it ended the connection"


class Watched:
    """Enters and leaves the transport that it is given; ``on_end(reason)`` is called when its messages end."""

    def __init__(self, transport: Any, on_end: Callable[[str], None]) -> None:
        self._transport = transport
        self._on_end = on_end

    async def __aenter__(self) -> Any:
        incoming, outgoing = await self._transport.__aenter__()
        return _Incoming(incoming, self._on_end), outgoing

    async def __aexit__(self, *details: Any) -> Any:
        return await self._transport.__aexit__(*details)


class _Incoming:
    def __init__(self, stream: Any, on_end: Callable[[str], None]) -> None:
        self._stream = stream
        self._on_end = on_end

    @property
    def last_context(self) -> Any:
        """The context in which the last message was sent; the library asks for it."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        return await self._stream.receive()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> _Incoming:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            self._on_end(ENDED)
            raise

    async def __aenter__(self) -> _Incoming:
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


async def load() -> None:
    """Import the library, without stopping the loop."""
    await asyncio.get_running_loop().run_in_executor(_threads, _import)


@contextlib.asynccontextmanager
async def connected(
    server: McpServer, programs: ProgramPlace, *, on_change: Callable[[], None], on_end: OnEnd
) -> AsyncIterator[Client]:
    """A client of the server (whose references are expanded), with its handshake done; `load` was called.

    `programs` is where it runs if it is a program. `on_change` is called when the server says that its tools are
    others now, `on_end` when the connection is over. To be entered and left in the same task.

    Raises:
        McpServerError: it cannot be reached or does not speak the protocol.
    """
    from mcp import MCPError
    from mcp.types import UNSUPPORTED_PROTOCOL_VERSION

    async with contextlib.AsyncExitStack() as stack:
        try:
            # The handshake that nearly all servers know comes first: some of them wait long before they refuse another.
            client = await stack.enter_async_context(_client(server, programs, "legacy", on_change, on_end))
        except (Exception, BaseExceptionGroup) as error:
            cause = cause_of(error)
            if not isinstance(cause, MCPError) or cause.code != UNSUPPORTED_PROTOCOL_VERSION:
                raise
            client = await stack.enter_async_context(_client(server, programs, "auto", on_change, on_end))
        yield client


@contextlib.asynccontextmanager
async def _client(
    server: McpServer, programs: ProgramPlace, mode: str, on_change: Callable[[], None], on_end: OnEnd
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

    program = ProgramTransport(server, programs, parse=read_message, on_end=ended) if server.kind == "stdio" else None
    client = Client(
        program or Watched(transport_to(server, refusals), ended),
        mode=mode,
        message_handler=on_message,
        client_info=Implementation(name="drydock", version=VERSION),
        cache=None,
    )
    try:
        await client.__aenter__()
    except Exception as error:
        if refusals and isinstance(cause_of(error), MCPError):  # the library keeps the status to itself
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
    """All tools that the server lists, page by page, up to `MAX_TOOLS`.

    Raises:
        McpServerError: it did not give them.
    """
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
    """Where the protocol's version wants changes to be asked for, ask, and call `on_change` for each; else return."""
    from mcp import MCPError
    from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost

    with contextlib.suppress(ListenNotSupportedError, SubscriptionLost, MCPError):
        async with client.listen(tools_list_changed=True) as changes:
            async for _ in changes:
                on_change()
