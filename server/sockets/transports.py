"""The library's own connections, below those of the protocol: known while they last, and gone for good afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import socketio
from engineio.async_socket import AsyncSocket
from engineio.exceptions import SocketIsClosedError

from server.sockets.limits import SocketLimits
from server.sockets.line import SCOPE_KEY, SocketConnection

logger = logging.getLogger(__name__)


class Transports:
    """Ends what the library would keep of a connection that has ended: its place, its queue and its tasks.

    By itself it keeps them until its next look around, which may be a minute away, and in part until the next client
    comes; a client that does not read would keep its whole queue here meanwhile.
    """

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
        """Whether there is such a connection."""
        return transport_id in self._known and not self._known[transport_id].closed

    def has_joined(self, transport_id: str) -> bool:
        """Whether it is in a conversation."""
        return transport_id in self._known and transport_id not in self._loose

    def joined(self, transport_id: str) -> None:
        """It is in a conversation now."""
        self._loose.pop(transport_id, None)

    def left(self, transport_id: str) -> None:
        """It is in none any more, and has a while to join another one."""
        if transport_id in self._known:
            self._loose[transport_id] = asyncio.get_running_loop().time() + self._limits.handshake_seconds

    def upgraded(self, transport_id: str, line: SocketConnection) -> None:
        """A connection that began by polling goes on over this line."""
        self._upgrades[transport_id] = line
        line.transport_id = transport_id

    def upgrade_of(self, transport_id: str) -> SocketConnection | None:
        """The line over which it goes on."""
        return self._upgrades.get(transport_id)

    async def line_ended(self, line: SocketConnection) -> None:
        """A WebSocket has ended: so has its transport, or else the attempt to carry on one that polls."""
        if line.transport_id is not None:
            await self.forget(line.transport_id)
        elif line.asked_for is not None and (transport := self._known.get(line.asked_for)) is not None:
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
            await self._look_around()

    async def aclose(self) -> None:
        """Forget all."""
        for transport_id in list(self._known):
            try:
                await self.forget(transport_id)
            except Exception:
                logger.exception("connection %s did not end cleanly", transport_id)

    async def _look_around(self) -> None:
        # Not in the loop of `watch`, whose names would keep the last one until the next look.
        for transport_id, transport in list(self._known.items()):
            try:
                await self._look_at(transport_id, transport)
            except Exception:
                logger.exception("connection %s did not end cleanly", transport_id)

    async def _look_at(self, transport_id: str, transport: AsyncSocket) -> None:
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
        line: SocketConnection | None = environ["asgi.scope"].get(SCOPE_KEY)
        if line is not None:
            line.transport_id = transport_id
        return await self._connect(transport_id, environ)

    def _start(self, target: Callable[..., Coroutine[Any, Any, Any]], *args: Any, **options: Any) -> asyncio.Task[Any]:
        """In place of the library's own, which nobody could end: a ping waits in it for its time."""
        task = asyncio.create_task(target(*args, **options), name="engine.io")
        owner = getattr(target, "__self__", None)
        if isinstance(owner, AsyncSocket):
            tasks = self._tasks.setdefault(owner.sid, set())
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        return task
