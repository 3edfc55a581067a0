"""What the library leaves open about a WebSocket: ends the connections of clients that do not join or do not read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.sockets.limits import SocketLimits

SCOPE_KEY: Final = "drydock.line"
GOING_AWAY: Final = 1001
_PACKETS: Final = frozenset("0123456")
"""How the packets of Engine.IO begin."""
_STALLED: Final = "the client does not read"

logger = logging.getLogger(__name__)


class Line:
    """One WebSocket connection, as seen between the web server and the Socket.IO library."""

    def __init__(self, receive: Receive, send: Send, limits: SocketLimits) -> None:
        self._receive = receive
        self._send = send
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._stalled: set[asyncio.Task[Any]] = set()
        self._sender: asyncio.Task[Any] | None = None
        self._sending_since = 0.0
        self._deadline: asyncio.TimerHandle | None = None
        self._watch = self._loop.call_later(limits.stall_seconds / 2, self._look_for_stall)
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
            self._deadline = self._loop.call_later(self._limits.handshake_seconds, self.end)

    def end(self) -> None:
        """Close the connection once everything queued so far is sent; a client then comes back by itself."""
        self.joined()
        if not self._over.done():
            self._over.set_result(None)

    def close(self) -> None:
        """The connection has ended."""
        self.end()
        self._watch.cancel()

    async def receive(self) -> Message:
        """The next message of the client, or the end of the connection."""
        if self._over.done():
            return {"type": "websocket.disconnect", "code": GOING_AWAY}
        waiting: asyncio.Future[Message] = asyncio.ensure_future(self._receive())
        either: list[asyncio.Future[Any]] = [waiting, self._over]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if waiting.done() and not _is_garbage(waiting.result()):
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
        if self._stalled:
            raise OSError(_STALLED)
        self._sending_since = self._loop.time()
        self._sender = asyncio.current_task()
        try:
            await self._send(message)
        except asyncio.CancelledError:
            if self._sender in self._stalled and self._sender.uncancel() == 0:
                raise OSError(_STALLED) from None
            raise
        finally:
            self._sender = None

    def _look_for_stall(self) -> None:
        """Instead of a time limit around each `send`, which would cost more than all else that is done here."""
        limit = self._limits.stall_seconds
        if self._sender is None or self._loop.time() - self._sending_since < limit:
            self._watch = self._loop.call_later(limit / 2, self._look_for_stall)
            return
        logger.info("a client took nothing for %g s; closing its connection", limit)
        self._stalled.add(self._sender)
        self._sender.cancel()
        self.end()


def _is_garbage(message: Message) -> bool:
    """Whether it is no packet at all: the library would let go of the connection without ending it."""
    text = message.get("text")
    if text is None or text[:1] in _PACKETS:
        return False
    logger.info("a client sent what is no packet; closing its connection")
    return True


class LineKeeper:
    """ASGI middleware that puts a `Line` around each WebSocket and names it in the scope.

    `on_upgrade` is told of lines that carry on a connection begun by polling, with that connection's transport id.
    """

    def __init__(self, app: ASGIApp, limits: SocketLimits, on_upgrade: Callable[[str, Line], None]) -> None:
        self._app = app
        self._limits = limits
        self._on_upgrade = on_upgrade

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "websocket":
            await self._app(scope, receive, send)
            return
        line = Line(receive, send, self._limits)
        transport_id = parse_qs(scope["query_string"].decode("latin-1")).get("sid")
        if transport_id:
            self._on_upgrade(transport_id[0], line)
        try:
            await self._app({**scope, SCOPE_KEY: line}, line.receive, line.send)
        finally:
            line.close()
