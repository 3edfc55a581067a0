"""What the library leaves open about a WebSocket: ends the connections of clients that do not join or do not read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.sockets.limits import SocketLimits

SCOPE_KEY: Final = "drydock.line"
WIRE_KEY: Final = "drydock.wire"
"""Under which the web server names, among the scope's extensions, the `Wire` of a WebSocket."""

GOING_AWAY: Final = 1001
_PACKETS: Final = frozenset("0123456")
"""How the packets of Engine.IO begin."""
_UPGRADE: Final = "5"
"""With it a client that has polled goes on over the WebSocket on which it says so."""
_STALLED: Final = "the client does not read"

logger = logging.getLogger(__name__)


class Wire(Protocol):
    """What the web server can do to a WebSocket that ASGI has no words for."""

    def take(self, max_bytes: int) -> None:
        """From now on refuse messages that are larger, before they are read."""
        ...

    def abort(self) -> None:
        """Cut it, and let go of what could not be sent."""
        ...


class SocketConnection:
    """One WebSocket connection, as seen between the web server and the Socket.IO library.

    `asked_for` is the transport that polls, if the WebSocket is to carry on one. `transport_id` is the one that it is,
    once it is one.
    """

    def __init__(
        self,
        receive: Receive,
        send: Send,
        limits: SocketLimits,
        *,
        wire: Wire | None = None,
        asked_for: str | None = None,
        on_upgrade: Callable[[str, SocketConnection], None] = lambda _id, _line: None,
    ) -> None:
        self.asked_for = asked_for
        self.transport_id: str | None = None
        self._receive = receive
        self._send = send
        self._limits = limits
        self._wire = wire
        self._on_upgrade = on_upgrade
        self._has_joined = False
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._stalled: set[asyncio.Task[Any]] = set()
        self._sender: asyncio.Task[Any] | None = None
        self._sending_since = 0.0
        self._deadline: asyncio.TimerHandle | None = None
        self._watch = self._loop.call_later(limits.stall_seconds / 2, self._look_for_stall)
        self.left()

    def joined(self) -> None:
        """The client is in a conversation: it may stay, and say more at once."""
        self._has_joined = True
        self._end_deadline()
        if self._wire is not None:
            self._wire.take(self._limits.max_transport_bytes)

    def left(self) -> None:
        """The client is in no conversation: it has a while to join one."""
        self._has_joined = False
        self._end_deadline()
        if self._wire is not None:
            self._wire.take(self._limits.max_joining_bytes)
        if not self._over.done():
            self._deadline = self._loop.call_later(self._limits.handshake_seconds, self.end)

    def end(self) -> None:
        """Close the connection once everything queued so far is sent; a client then comes back by itself."""
        self._end_deadline()
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
            if waiting.done() and self._is_taken(waiting.result()):
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

    def _is_taken(self, message: Message) -> bool:
        """Whether the library is to have it: it would let go of a connection without ending it for what is none."""
        text = message.get("text")
        if text is not None and text[:1] not in _PACKETS:
            logger.info("a client sent what is no packet; closing its connection")
            return False
        if not self._has_joined and _bytes_of(message) > self._limits.max_joining_bytes:
            logger.info("a client sent much before it joined a conversation; closing its connection")
            return False
        if text == _UPGRADE and self.asked_for is not None and self.transport_id is None:
            self._on_upgrade(self.asked_for, self)
        return True

    def _end_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

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
        if self._wire is not None:
            self._wire.abort()


def _bytes_of(message: Message) -> int:
    text = message.get("text") or ""
    return len(message.get("bytes") or b"") + (len(text) if text.isascii() else len(text.encode()))


class LineKeeper:
    """ASGI middleware that puts a `SocketConnection` around each WebSocket and names it in the scope.

    `on_upgrade` is told of lines that carry on a connection begun by polling, with that connection's transport id, and
    `on_end` of every line that has ended.
    """

    def __init__(
        self,
        app: ASGIApp,
        limits: SocketLimits,
        on_upgrade: Callable[[str, SocketConnection], None],
        on_end: Callable[[SocketConnection], Awaitable[None]],
    ) -> None:
        self._app = app
        self._limits = limits
        self._on_upgrade = on_upgrade
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "websocket":
            await self._app(scope, receive, send)
            return
        named = parse_qs(scope["query_string"].decode("latin-1")).get("sid", [None])
        wire = (scope.get("extensions") or {}).get(WIRE_KEY)
        line = SocketConnection(receive, send, self._limits, wire=wire, asked_for=named[0], on_upgrade=self._on_upgrade)
        try:
            await self._app({**scope, SCOPE_KEY: line}, line.receive, line.send)
        finally:
            line.close()
            await self._on_end(line)
