"""The edge of WebSockets: what one of them may send before it is known, and how long it may take nothing."""

from __future__ import annotations

from asyncio.events import TimerHandle
from collections import deque
from typing import Any, ClassVar, Final

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from server.http.http_protocol import WriteWatch
from server.sockets.limits import SocketLimits
from server.sockets.line import WIRE_KEY

_PIECE: Final = 8 * 1024
"""As much is parsed at a time: of the smallest frames a thousand, which takes some twenty milliseconds."""


class BoundedWebSocketProtocol(WebSocketsSansIOProtocol):
    """The library's WebSocket: small messages until the application says more (`take`), and never what nobody reads.

    Frames that come faster than `frames_per_second` wait in the client's own buffers, pings and empty ones as well:
    parsed as they come, those of one connection would take all of the event loop's time.

    The application finds it among the scope's extensions, as a `server.sockets.line.Wire`.
    """

    frames_at_once: ClassVar[int] = 1000
    frames_per_second: ClassVar[float] = 500.0

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.take(SocketLimits().max_joining_bytes)
        self._watch = WriteWatch(self.loop)
        self._pieces: deque[bytes] = deque()
        self._next: TimerHandle | None = None
        """Parses the next piece; nothing is read until then."""
        self._credit = float(self.frames_at_once)
        self._credited_at = self.loop.time()

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
        self._read_on()

    def data_received(self, data: bytes) -> None:
        """Parse it, a piece at a time once the handshake is done, so that others have their turn."""
        if not self.handshake_initiated:
            super().data_received(data)
            return
        self._pieces.extend(data[start : start + _PIECE] for start in range(0, len(data), _PIECE))
        if self._next is None:
            self._parse()

    def handle_events(self) -> None:
        """Count them."""
        self._credit -= len(self.conn.events)
        super().handle_events()

    def connection_lost(self, exc: Exception | None) -> None:
        """Keep nothing."""
        self._watch.end()
        self._pieces.clear()
        if self._next is not None:
            self._next.cancel()
            self._next = None
        super().connection_lost(exc)

    async def receive(self) -> Any:
        """The next message."""
        message = await super().receive()
        if self._next is not None or not self.writable.is_set():
            self.transport.pause_reading()
        return message

    def _parse(self) -> None:
        self._next = None
        if self._pieces and not self.transport.is_closing():
            super().data_received(self._pieces.popleft())
        wait = self._wait()
        if self._pieces or wait:
            self.transport.pause_reading()
            self._next = self.loop.call_later(wait, self._parse)
        else:
            self._read_on()

    def _wait(self) -> float:
        """Seconds until more frames may be parsed."""
        now = self.loop.time()
        credit = self._credit + (now - self._credited_at) * self.frames_per_second
        self._credit, self._credited_at = min(credit, float(self.frames_at_once)), now
        return max(0.0, -self._credit / self.frames_per_second)

    def _read_on(self) -> None:
        if self._next is None and self.writable.is_set() and not self.read_paused:
            self.transport.resume_reading()
