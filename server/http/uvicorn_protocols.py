"""uvicorn's protocols with bounds: the size and time of a request's head, requests and frames that wait."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from asyncio.events import TimerHandle
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar, Final, Protocol

from httptools import HttpParserError, HttpParserUpgrade
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from server.http.turnstile import Turnstile
from server.http.unfinished import TOO_MUCH, Unfinished

CONTROL_KEY: Final = "drydock.control"
"""Names the `WebSocketControl` of a WebSocket among the scope's extensions."""
MAX_JOINING_BYTES: Final = 64 * 1024
"""The largest message of a WebSocket of which the application has not asked for more."""

_PIECE: Final = 16 * 1024
"""As much is parsed at a time, so that a bound is passed by no more than this."""

_FRAME_PIECE: Final = 8 * 1024
"""As much is parsed at a time: of the smallest frames a thousand, which takes some twenty milliseconds."""

_OTHER_HTTP: Final = re.compile(rb"\r\nupgrade:[ \t]*h2c[ \t]*(?=\r\n)", re.IGNORECASE)
"""An offer to go on in HTTP/2, as Java's own client makes it with its first request: a server may pass over it."""

CROWDED: Final = "the server has as many connections as it takes; come back in a few seconds"
CROWDED_SECONDS: Final = 5
_MALFORMED: Final = "this is no HTTP/1.1 request that the server understands"
_NO_HANDSHAKE: Final = (
    "this is no handshake of a WebSocket: it is a GET without a body, of at most 128 headers and 8192 bytes in each"
)


class WriteWatch:
    """Cuts a connection whose client takes nothing of what waits for it, for `stall_seconds`."""

    stall_seconds: ClassVar[float] = 60.0

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: TimerHandle | None = None

    def begin(self, transport: asyncio.Transport) -> None:
        self.end()
        self._wait(transport)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self, transport: asyncio.Transport) -> None:
        waiting = transport.get_write_buffer_size()
        self._timer = self._loop.call_later(self.stall_seconds, self._look, transport, waiting)

    def _look(self, transport: asyncio.Transport, waited: int) -> None:
        if transport.get_write_buffer_size() < waited:
            self._wait(transport)
            return
        self._timer = None
        transport.abort()


class BoundedHttpProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1, with bounds on what it keeps of one connection before the application is asked.

    A head (or trailers) too large is answered 431, a late one 408, what is no HTTP 400; then the connection ends.
    Bodies are not bounded here, except that the rest of an answered one has the time of a head. Who comes beyond
    `max_connections` of all clients together, with WebSockets, is answered 503, and `on_crowded` called; so is who goes
    on with a head when all that are `unfinished` are too much. WebSockets begin one after the other (`upgrades`).
    """

    max_head_bytes: ClassVar[int] = 64 * 1024

    head_seconds: ClassVar[float] = 30.0
    """From the opening of a connection, or from the first byte of a further request, to the end of the head."""

    max_refused: ClassVar[int] = 64
    """So many connections beyond `max_connections` are told so at a time; further ones are cut."""

    linger_seconds: ClassVar[float] = 2.0
    """How long a client that is refused may go on sending, so that it gets to reading why."""

    def __init__(
        self,
        *args: Any,
        max_connections: int = sys.maxsize,
        on_crowded: Callable[[], None] = lambda: None,
        upgrades: Turnstile | None = None,
        unfinished: Unfinished | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self._upgrades = upgrades or Turnstile()
        self._unfinished = unfinished or Unfinished()
        self._counted = 0
        self._max_connections = max_connections
        self._on_crowded = on_crowded
        self._pieces: deque[bytes] = deque()
        self._loose_bytes = 0
        """Parsed since the last thing of use: the end of a head, or a part of a body."""
        self._is_in_body = False
        self._is_refused = False
        self._timer: TimerHandle | None = None
        self._watch = WriteWatch(self.loop)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._limit_time()
        beyond = len(self.connections) - self._max_connections
        if beyond > 0:
            self._on_crowded()
            if beyond > self.max_refused:
                transport.abort()
            else:
                self._refuse(503, CROWDED, b"retry-after: %d\r\n" % CROWDED_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_limit()
        self._watch.end()
        self._pieces.clear()
        self._count(0)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch.begin(self.transport)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._watch.end()

    def data_received(self, data: bytes) -> None:
        """Parse it, or keep it for as long as earlier requests wait for their answers."""
        if self._is_refused:
            return
        self._unset_keepalive_if_required()
        self._pieces.extend(data[start : start + _PIECE] for start in range(0, len(data), _PIECE))
        self._parse()
        if self._pieces:
            self.flow.pause_reading()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_in_body:
            self._limit_time()
        if self._pieces and not self.pipeline:
            self._unset_keepalive_if_required()
            self._parse()
        if self.pipeline:
            self.flow.pause_reading()

    def on_headers_complete(self) -> None:
        self._end_limit()
        self._loose_bytes = 0
        self._is_in_body = True
        super().on_headers_complete()
        if self.parser.should_upgrade() and not self._should_upgrade():
            self.cycle.keep_alive = False  # what follows is of a protocol that is not spoken here

    def on_body(self, body: bytes) -> None:
        self._loose_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._loose_bytes = 0
        self._is_in_body = False
        self._end_limit()
        super().on_message_complete()

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over, when its turn has come."""
        self._pieces.clear()
        self._watch.end()
        self._count(0)
        self.flow.pause_reading()
        self._upgrades.enter(self._upgrade)

    def _upgrade(self) -> None:
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        super().handle_websocket_upgrade()
        # uvicorn's WebSocket protocol is silent about heads that it does not take.
        if not getattr(self.transport.get_protocol(), "handshake_initiated", True):
            self.transport.write(_reply(400, _NO_HANDSHAKE))
            self.transport.close()

    def _parse(self) -> None:
        while self._pieces and not (self.pipeline or self._is_refused or self.transport.is_closing()):
            piece = self._pieces.popleft()
            self._loose_bytes += len(piece)
            try:
                self.parser.feed_data(piece if self._is_in_body else _without_offers(piece))
            except HttpParserUpgrade:
                if self._should_upgrade():
                    self.handle_websocket_upgrade()
                    return
            except HttpParserError:
                self._refuse(400, _MALFORMED)
                return
            if self._loose_bytes > self.max_head_bytes:
                self._refuse(
                    431, f"the head of the request is larger than {self.max_head_bytes} bytes; send less in it"
                )
        if not self._count(0 if self._is_in_body or self._is_refused else self._loose_bytes):
            self._refuse(503, TOO_MUCH, b"retry-after: %d\r\n" % CROWDED_SECONDS)
        if self._loose_bytes and not (self._is_in_body or self._is_refused):
            self._limit_time()

    def _count(self, now: int) -> bool:
        before, self._counted = self._counted, now
        return self._unfinished.grew(before, now)

    def _limit_time(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.head_seconds, self._time_is_up)

    def _end_limit(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_is_up(self) -> None:
        self._timer = None
        if self.cycle is not None and not self.cycle.response_complete:
            return  # the time after the answer is uvicorn's to limit
        if self._loose_bytes:
            self._refuse(408, f"the head of the request did not end within {self.head_seconds:g} seconds")
        else:
            self.transport.close()

    def _refuse(self, status: int, problem: str, extra: bytes = b"") -> None:
        self._is_refused = True
        self._pieces.clear()
        self._end_limit()
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if self.pipeline or (is_answering and self.cycle.response_started):
            self.transport.close()
            return
        if is_answering:  # it waits for the rest of the body, which does not come
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.write(_reply(status, problem, extra))
        if self.transport.can_write_eof():  # over TLS there is no such half of an end
            self.transport.write_eof()
        self._timer = self.loop.call_later(self.linger_seconds, self.transport.close)


def _reply(status: int, problem: str, extra: bytes = b"") -> bytes:
    body = json.dumps({"detail": problem}).encode()
    headers = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n" % len(body)
    return STATUS_LINE[status] + headers + extra + b"\r\n" + body


def _without_offers(piece: bytes) -> bytes:
    head, end, rest = piece.partition(b"\r\n\r\n")
    return _OTHER_HTTP.sub(b"", head + end[:2]) + end[2:] + rest if end else piece


class WebSocketControl(Protocol):
    """What the web server can do to a WebSocket that ASGI has no words for."""

    def take(self, max_bytes: int) -> None:
        """Refuse larger messages from now on, before they are read."""

    def abort(self) -> None:
        """Cut it, and let go of what could not be sent."""


class BoundedWebSocketProtocol(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket: small messages until the application says more (`take`), and never what nobody reads.

    Frames beyond `frames_per_second`, pings too, wait in the client's buffers, so that one connection cannot take all
    of the event loop's time. Who goes on with a message when all that are `unfinished` are too much is cut. In the
    scope's extensions it is its `WebSocketControl`.
    """

    frames_at_once: ClassVar[int] = 1000
    frames_per_second: ClassVar[float] = 500.0

    def __init__(self, *args: Any, unfinished: Unfinished | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.take(MAX_JOINING_BYTES)
        self._unfinished = unfinished or Unfinished()
        self._counted = self._in_frames = 0
        self._watch = WriteWatch(self.loop)
        self._pieces: deque[bytes] = deque()
        self._next: TimerHandle | None = None
        """Parses the next piece; nothing is read until then."""
        self._credit = float(self.frames_at_once)
        self._credited_at = self.loop.time()

    def take(self, max_bytes: int) -> None:
        self.conn.max_message_size = max_bytes

    def abort(self) -> None:
        self.transport.abort()

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        if hasattr(self, "scope"):
            self.scope["extensions"] = {**(self.scope["extensions"] or {}), CONTROL_KEY: self}  # type: ignore[dict-item]

    def pause_writing(self) -> None:
        """Read nothing either: each ping of a client that reads nothing would be answered into memory."""
        super().pause_writing()
        self.transport.pause_reading()
        self._watch.begin(self.transport)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._watch.end()
        self._read_on()

    def data_received(self, data: bytes) -> None:
        """Parse it, a piece at a time once the handshake is done, so that others have their turn."""
        if not self.handshake_initiated:
            super().data_received(data)
            return
        self._pieces.extend(data[start : start + _FRAME_PIECE] for start in range(0, len(data), _FRAME_PIECE))
        if self._next is None:
            self._parse()

    def handle_events(self) -> None:
        self._credit -= len(self.conn.events)
        came = sum(len(getattr(event, "data", b"")) for event in self.conn.events)  # a request has none
        super().handle_events()
        self._in_frames = self._in_frames + came if self.frames else 0

    def connection_lost(self, exc: Exception | None) -> None:
        self._watch.end()
        self._pieces.clear()
        self._count(0)
        if self._next is not None:
            self._next.cancel()
            self._next = None
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """End it with the server; uvicorn's own fails where a handshake has come to another end already."""
        if self.handshake_complete and self.conn.state.name == "OPEN":
            super().shutdown()
        else:
            self.stop_keepalive()
            self.transport.close()

    async def send(self, message: Any) -> None:
        if not self.handshake_complete and self.transport.is_closing():
            raise ClientDisconnected  # uvicorn would take what comes after the handshake for a fault of ours
        await super().send(message)

    async def receive(self) -> Any:
        message = await super().receive()
        if self._next is not None or not self.writable.is_set():
            self.transport.pause_reading()
        return message

    def _parse(self) -> None:
        self._next = None
        if self._pieces and not self.transport.is_closing():
            super().data_received(self._pieces.popleft())
            if not self._count(self._in_frames + len(self.conn.reader.buffer)):
                self.transport.abort()
        wait = self._wait()
        if self._pieces or wait:
            self.transport.pause_reading()
            self._next = self.loop.call_later(wait, self._parse)
        else:
            self._read_on()

    def _count(self, now: int) -> bool:
        before, self._counted = self._counted, now
        return self._unfinished.grew(before, now)

    def _wait(self) -> float:
        now = self.loop.time()
        credit = self._credit + (now - self._credited_at) * self.frames_per_second
        self._credit, self._credited_at = min(credit, float(self.frames_at_once)), now
        return max(0.0, -self._credit / self.frames_per_second)

    def _read_on(self) -> None:
        if self._next is None and self.writable.is_set() and not self.read_paused:
            self.transport.resume_reading()
