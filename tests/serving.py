"""ASGI applications over real HTTP on loopback, within the process of a test."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

_START_SECONDS = 60
_BACKLOG = 1024


class _Server(uvicorn.Server):
    """A server that ends when it is told to, not when it looks next; the date in its answers is that of its start."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._told_to_end = asyncio.Event()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self._told_to_end.wait()

    def end(self) -> None:
        self.should_exit = True
        self._told_to_end.set()


@asynccontextmanager
async def serving(app: Any, *, port: int = 0, abruptly: bool = False, **options: Any) -> AsyncIterator[int]:
    """Serve an application on this port, by default a free one, which is given.

    It has its lifespan unless ``lifespan="off"``; ``options`` are those of uvicorn. ``abruptly``: in the end what is
    still connected is cut, as if the process had ended.
    """
    chosen = {"log_level": "warning", "lifespan": "on", "ws": "websockets-sansio", "timeout_graceful_shutdown": 1}
    with socket.create_server(("127.0.0.1", port), backlog=_BACKLOG) as listener:
        # Connections inherit it. As in the product, whose event loop sets it: else each second packet waits 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server = _Server(uvicorn.Config(app, **{**chosen, **options}))
        running = asyncio.create_task(server.serve(sockets=[listener]), name="server of a test")
        try:
            async with asyncio.timeout(_START_SECONDS):
                while not server.started and not running.done():  # noqa: ASYNC110 - it signals nothing
                    await asyncio.sleep(0.005)
            yield int(listener.getsockname()[1])
        finally:
            if abruptly:
                for connection in list(server.server_state.connections):
                    connection.transport.abort()
                await asyncio.sleep(0)  # they are told that it is gone
            server.end()
            await running
