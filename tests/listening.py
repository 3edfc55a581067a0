"""Small servers that a test scripts, and that leave no task and no connection behind: what stays open fails a later
test, whose fault it is not."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
_BACKLOG = 512
_CLOSE_SECONDS = 10


class _Connections:
    """The connections of one server. An error of a handler fails the test, except that the other end has gone."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._made: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer), name="connection of a test's server")
        self._made[task] = writer

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._handler(reader, writer)
        finally:
            writer.close()

    async def end(self) -> None:
        """Cut what is still open, and wait until nothing of it is left."""
        async with asyncio.timeout(_CLOSE_SECONDS):
            for task, writer in self._made.items():
                if not writer.is_closing():
                    writer.transport.abort()
                task.cancel()
            ended = await asyncio.gather(*self._made, return_exceptions=True)
            for writer in self._made.values():
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
        for error in ended:
            if error is not None and not isinstance(error, asyncio.CancelledError):
                raise error


@contextlib.asynccontextmanager
async def listening(
    handler: Handler, host: str = "127.0.0.1", *, encrypted: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve each connection to a free port of this address with the handler; gives the port."""
    connections = _Connections(handler)
    server = await asyncio.start_server(connections.accept, host, 0, backlog=_BACKLOG, ssl=encrypted)
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        await connections.end()


@contextlib.asynccontextmanager
async def listening_at(path: Path, handler: Handler) -> AsyncIterator[Path]:
    """Serve each connection to a socket file of this name with the handler; gives the name."""
    connections = _Connections(handler)
    server = await asyncio.start_unix_server(connections.accept, path)
    try:
        yield path
    finally:
        server.close()
        await connections.end()
