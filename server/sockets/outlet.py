"""The way out to one client: keeps the order, and knows how much still waits in the transport."""

from __future__ import annotations

import asyncio

import socketio
from engineio.exceptions import SocketIsClosedError

from server.sockets.packets import OutgoingPacket


class Outlet:
    """Sends frames to one client, in the order of the calls.

    The library's own queue has no bound; here `send` waits while more than the limit stands in it, so what a client
    that does not read costs is bounded. The wait ends at the latest with the connection. `transport_id` names the
    connection below, at the transport.
    """

    def __init__(self, server: socketio.AsyncServer, connection_id: str, *, max_buffer_bytes: int) -> None:
        self._server = server
        self.transport_id: str = server.manager.eio_sid_from_sid(connection_id, "/")
        self._limit = max_buffer_bytes
        self._waiting = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self.closed = False

    @property
    def waiting_bytes(self) -> int:
        """What the transport has not taken yet."""
        return self._waiting

    async def send(self, event: str, body: bytes) -> None:
        """Queue one event with its JSON argument, once there is room; nothing happens when the client has gone."""
        while self._waiting > self._limit and not self.closed:
            self._has_room.clear()
            await self._has_room.wait()
        await self.send_now(event, body)

    async def send_now(self, event: str, body: bytes) -> None:
        """Queue one small event without waiting for room."""
        if self.closed:
            return
        packet = OutgoingPacket(event, body, self._taken)
        self._waiting += packet.size
        try:
            # Not `AsyncServer.emit`: for each frame that looks for binary data and rooms, at six times the cost.
            await self._server.eio.send_packet(self.transport_id, packet)
        except SocketIsClosedError:
            self.close()

    def close(self) -> None:
        """The client has gone: send nothing more, and let those go who wait for room."""
        self.closed = True
        self._has_room.set()

    def _taken(self, size: int) -> None:
        self._waiting -= size
        if self._waiting <= self._limit // 2:
            self._has_room.set()
