"""What the library leaves open about a WebSocket: ends the connections of clients that do not join or do not read."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.sockets.limits import SocketLimits

SCOPE_KEY: Final = "drydock.line"
GOING_AWAY: Final = 1001

logger = logging.getLogger(__name__)


class Line:
    """One WebSocket connection, as seen between the web server and the Socket.IO library."""

    def __init__(self, receive: Receive, send: Send, limits: SocketLimits) -> None:
        self._receive = receive
        self._send = send
        self._limits = limits
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_stalled = False
        self._deadline: asyncio.TimerHandle | None = None
        self.left()

    def joined(self) -> None:
        """The client is in a conversation: it may stay."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def left(self) -> None:
        """The client is in no conversation: it has a while to join one."""
        self.joined()
        if not self._over.done():
            delay = self._limits.handshake_seconds
            self._deadline = asyncio.get_running_loop().call_later(delay, self.end)

    def end(self) -> None:
        """Close the connection once everything queued so far is sent; a client then comes back by itself."""
        self.joined()
        if not self._over.done():
            self._over.set_result(None)

    async def receive(self) -> Message:
        """The next message of the client, or the end of the connection."""
        if self._over.done():
            return {"type": "websocket.disconnect", "code": GOING_AWAY}
        waiting: asyncio.Future[Message] = asyncio.ensure_future(self._receive())
        either: list[asyncio.Future[Any]] = [waiting, self._over]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                return waiting.result()
            return {"type": "websocket.disconnect", "code": GOING_AWAY}
        finally:
            if not waiting.done():
                waiting.cancel()
                await asyncio.wait([waiting])

    async def send(self, message: Message) -> None:
        """Pass a message on.

        Raises:
            OSError: the client has not read for too long; the connection ends.
        """
        if self._is_stalled:
            raise OSError("the client does not read")
        try:
            async with asyncio.timeout(self._limits.stall_seconds):
                await self._send(message)
        except TimeoutError:
            logger.info("a client took nothing for %g s; closing its connection", self._limits.stall_seconds)
            self._is_stalled = True
            self.end()
            raise OSError("the client does not read") from None


class LineKeeper:
    """ASGI middleware that puts a `Line` around each WebSocket and names it in the scope."""

    def __init__(self, app: ASGIApp, limits: SocketLimits) -> None:
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "websocket":
            await self._app(scope, receive, send)
            return
        line = Line(receive, send, self._limits)
        try:
            await self._app({**scope, SCOPE_KEY: line}, line.receive, line.send)
        finally:
            line.end()
