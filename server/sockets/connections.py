"""Connections below Socket.IO: their limits, WebSockets that do not join or do not read, transports that have ended."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs

from engineio.async_socket import AsyncSocket
from engineio.exceptions import SocketIsClosedError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent_core.troubles import Trouble, coded
from server.http.uvicorn_protocols import CONTROL_KEY, MAX_JOINING_BYTES, WebSocketControl
from server.sockets.library import socketio

MEBIBYTE: Final = 1024 * 1024
TRANSPORT_FACTOR: Final = 4
"""How much longer than allowed a message may be and still be answered in words; beyond, the connection is closed."""


@dataclass(frozen=True, slots=True)
class SocketLimits:
    """Limits of each connection. Sizes in bytes, times in seconds."""

    max_message_bytes: int = 4 * MEBIBYTE
    max_joining_bytes: int = MAX_JOINING_BYTES
    """The largest message of a client that is in no conversation yet."""
    max_buffer_bytes: int = MEBIBYTE // 4
    """What may wait for a client before its feed pauses. A ping waits behind it: who takes less within
    `ping_timeout_seconds` is taken for dead, and has to come back."""
    stall_seconds: float = 60.0
    """A client that takes nothing for so long while something waits for it is disconnected."""
    handshake_seconds: float = 20.0
    """A connection that has not joined a conversation by then is closed."""
    read_retry_seconds: tuple[float, ...] = (0.2, 1.0, 5.0)
    """Waits between attempts to read a log, before its feed gives up."""
    join_seconds: float = 15.0
    send_seconds: float = 30.0
    ping_interval_seconds: float = 25.0
    ping_timeout_seconds: float = 20.0

    @property
    def max_transport_bytes(self) -> int:
        """The largest WebSocket message that is read at all."""
        return self.max_message_bytes * TRANSPORT_FACTOR


SCOPE_KEY: Final = "drydock.connection"

GOING_AWAY: Final = 1001
_PACKETS: Final = frozenset("0123456")
"""First characters of Engine.IO's packets."""
_UPGRADE: Final = "5"
"""Packet with which a client that has polled goes on over the WebSocket on which it is sent."""
_STALLED: Final = "the client does not read"

logger = logging.getLogger(__name__)


class SocketConnection:
    """One WebSocket connection between the web server and python-socketio.

    `polling_id` is the polling transport that it is to carry on, `transport_id` the one that it is by now.
    """

    def __init__(
        self,
        receive: Receive,
        send: Send,
        limits: SocketLimits,
        *,
        control: WebSocketControl | None = None,
        polling_id: str | None = None,
        on_upgrade: Callable[[str, SocketConnection], None] = lambda _id, _websocket: None,
    ) -> None:
        self.polling_id = polling_id
        self.transport_id: str | None = None
        self._receive = receive
        self._send = send
        self._limits = limits
        self._control = control
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

    def joining(self) -> None:
        """It waits for an answer from here on: no time of its own runs out."""
        self._end_deadline()

    def joined(self) -> None:
        self._has_joined = True
        self._end_deadline()
        if self._control is not None:
            self._control.take(self._limits.max_transport_bytes)

    def left(self) -> None:
        self._has_joined = False
        self._end_deadline()
        if self._control is not None:
            self._control.take(self._limits.max_joining_bytes)
        if not self._over.done():
            self._deadline = self._loop.call_later(self._limits.handshake_seconds, self.end)

    def end(self) -> None:
        """Close the connection once everything queued so far is sent; a client then comes back by itself."""
        self._end_deadline()
        if not self._over.done():
            self._over.set_result(None)

    def close(self) -> None:
        self.end()
        self._watch.cancel()

    async def receive(self) -> Message:
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
        """Pass a message on; `OSError` once the client has not read for too long."""
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
        """Whether engine.io is to have it: for what is no packet it drops the connection without ending it."""
        text = message.get("text")
        if text is not None and text[:1] not in _PACKETS:
            extra = coded(Trouble.WRONG_CLIENT)
            logger.info("a client sent what is no packet; closing its connection", extra=extra)
            return False
        if not self._has_joined and _bytes_of(message) > self._limits.max_joining_bytes:
            extra = coded(Trouble.WRONG_CLIENT)
            logger.info("a client sent much before it joined a conversation; closing its connection", extra=extra)
            return False
        if text == _UPGRADE and self.polling_id is not None and self.transport_id is None:
            self._on_upgrade(self.polling_id, self)
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
        extra = coded(Trouble.SLOW_CLIENT)
        logger.info("a client took nothing for %g s; closing its connection", limit, extra=extra)
        self._stalled.add(self._sender)
        self._sender.cancel()
        self.end()
        if self._control is not None:
            self._control.abort()


def _bytes_of(message: Message) -> int:
    text = message.get("text") or ""
    return len(message.get("bytes") or b"") + (len(text) if text.isascii() else len(text.encode()))


class ConnectionMiddleware:
    """ASGI middleware that puts a `SocketConnection` around each WebSocket and names it in the scope.

    `on_upgrade` is told of those that carry on a polling transport, `on_end` of all that ended.
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
        control = (scope.get("extensions") or {}).get(CONTROL_KEY)
        websocket = SocketConnection(
            receive, send, self._limits, control=control, polling_id=named[0], on_upgrade=self._on_upgrade
        )
        try:
            await self._app({**scope, SCOPE_KEY: websocket}, websocket.receive, websocket.send)
        finally:
            websocket.close()
            await self._on_end(websocket)


class Transports:
    """Ends at once what engine.io would keep of an ended connection for a minute or more: place, queue, tasks."""

    def __init__(self, server: socketio.AsyncServer, limits: SocketLimits) -> None:
        self._eio = server.eio
        self._limits = limits
        self._known: dict[str, AsyncSocket] = {}
        self._loose: dict[str, float] = {}
        """Transports in no conversation, by when they have to be in one."""
        self._tasks: dict[str, set[asyncio.Task[Any]]] = {}
        self._connect = self._eio.handlers["connect"]
        self._eio.on("connect", self._opened)
        self._eio.start_background_task = self._start
        self._upgrades: dict[str, SocketConnection] = {}

    def knows(self, transport_id: str) -> bool:
        return transport_id in self._known and not self._known[transport_id].closed

    def has_joined(self, transport_id: str) -> bool:
        return transport_id in self._known and transport_id not in self._loose

    def joining(self, transport_id: str) -> None:
        self._loose[transport_id] = math.inf

    def joined(self, transport_id: str) -> None:
        self._loose.pop(transport_id, None)

    def left(self, transport_id: str) -> None:
        if transport_id in self._known:
            self._loose[transport_id] = asyncio.get_running_loop().time() + self._limits.handshake_seconds

    def upgraded(self, transport_id: str, websocket: SocketConnection) -> None:
        """Note that a connection that began by polling goes on over this WebSocket."""
        self._upgrades[transport_id] = websocket
        websocket.transport_id = transport_id

    def upgrade_of(self, transport_id: str) -> SocketConnection | None:
        return self._upgrades.get(transport_id)

    async def websocket_ended(self, websocket: SocketConnection) -> None:
        if websocket.transport_id is not None:
            await self.forget(websocket.transport_id)
        elif websocket.polling_id is not None and (transport := self._known.get(websocket.polling_id)) is not None:
            transport.upgrading = False  # else it would hold back for ever what polls ask for

    async def forget(self, transport_id: str) -> None:
        """End it, if it has not ended, and let go of everything that it had."""
        transport = self._known.pop(transport_id, None)
        if transport is None:
            return
        try:
            if not transport.closing:
                await transport.close(wait=False, abort=True)
        finally:
            transport.closed = True
            transport.queue.shut()
            self._let_go(transport_id)

    def _let_go(self, transport_id: str) -> None:
        self._eio.sockets.pop(transport_id, None)
        self._loose.pop(transport_id, None)
        self._upgrades.pop(transport_id, None)
        for task in self._tasks.pop(transport_id, set()):
            if task is not asyncio.current_task():
                task.cancel()

    async def watch(self) -> None:
        """Forget those that have ended, do not answer, or do not join, for as long as this runs."""
        while True:
            await asyncio.sleep(self._limits.ping_timeout_seconds / 4)
            # Through ids only: names of this loop would keep the last transport until the next look.
            for transport_id in list(self._known):
                try:
                    await self._look_at(transport_id)
                except Exception:
                    logger.exception("connection %s did not end cleanly", transport_id)

    async def aclose(self) -> None:
        for transport_id in list(self._known):
            try:
                await self.forget(transport_id)
            except Exception:
                logger.exception("connection %s did not end cleanly", transport_id)

    async def _look_at(self, transport_id: str) -> None:
        transport = self._known.get(transport_id)
        if transport is None:
            return
        if not transport.closed and not transport.closing:
            with contextlib.suppress(SocketIsClosedError):
                await transport.check_ping_timeout()
        deadline = self._loose.get(transport_id)
        is_late = deadline is not None and asyncio.get_running_loop().time() > deadline
        if transport.closed or is_late:
            await self.forget(transport_id)

    async def _opened(self, transport_id: str, environ: Mapping[str, Any]) -> Any:
        self._known[transport_id] = self._eio.sockets[transport_id]
        self.left(transport_id)
        websocket: SocketConnection | None = environ["asgi.scope"].get(SCOPE_KEY)
        if websocket is not None:
            websocket.transport_id = transport_id
        return await self._connect(transport_id, environ)

    def _start(self, target: Callable[..., Coroutine[Any, Any, Any]], *args: Any, **options: Any) -> asyncio.Task[Any]:
        """Start engine.io's task as one that can be ended: a ping waits in it for its time."""
        task = asyncio.create_task(target(*args, **options), name="engine.io")
        owner = getattr(target, "__self__", None)
        if isinstance(owner, AsyncSocket):
            tasks = self._tasks.setdefault(owner.sid, set())
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        return task
