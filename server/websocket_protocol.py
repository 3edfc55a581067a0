"""The edge of WebSockets: what one of them may send before it is known, and how long it may take nothing."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from server.http_protocol import WriteWatch
from server.sockets.limits import SocketLimits
from server.sockets.line import WIRE_KEY


class BoundedWebSocketProtocol(WebSocketsSansIOProtocol):
    """The library's WebSocket: small messages until the application says more (`take`), and never what nobody reads.

    The application finds it among the scope's extensions, as a `server.sockets.line.Wire`.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.take(SocketLimits().max_joining_bytes)
        self._watch = WriteWatch(self.loop)

    def take(self, max_bytes: int) -> None:
        """Refuse larger messages from now on, as soon as they say how large they are."""
        self.conn.max_message_size = max_bytes

    def abort(self) -> None:
        """Cut the connection, and let go of what could not be sent."""
        self.transport.abort()

    def handle_connect(self, event: Any) -> None:
        """Begin the application, which can do to the connection what ASGI has no words for."""
        super().handle_connect(event)
        if hasattr(self, "scope"):
            self.scope["extensions"] = {**(self.scope["extensions"] or {}), WIRE_KEY: self}  # type: ignore[dict-item]

    def pause_writing(self) -> None:
        """Read nothing either: each ping of a client that reads nothing would be answered into memory."""
        super().pause_writing()
        self.transport.pause_reading()
        self._watch.begin(self.transport)

    def resume_writing(self) -> None:
        """Go on."""
        super().resume_writing()
        self._watch.end()
        if not self.read_paused:
            self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Keep nothing."""
        self._watch.end()
        super().connection_lost(exc)

    async def receive(self) -> Any:
        """The next message."""
        message = await super().receive()
        if not self.writable.is_set():
            self.transport.pause_reading()
        return message
