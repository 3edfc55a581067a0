"""`Outlet`: the way out to one client, and the packets of both directions."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, Final

import engineio.packet
import orjson
from engineio.exceptions import SocketIsClosedError

from server.sockets.library import socketio
from server.wire.errors import WireError
from server.wire.json_data import check_value_count_now, read_json, too_large

_MAX_UTF8_BYTES: Final = 4
_BINARY: Final = (socketio.packet.BINARY_EVENT, socketio.packet.BINARY_ACK)
_BINARY_PROBLEM: Final = "the message is binary; send JSON, and binary data as files"
_TAKEN: Final = (socketio.packet.CONNECT, socketio.packet.DISCONNECT, socketio.packet.EVENT)
_TYPE_PROBLEM: Final = "the packet is of no type that clients send here; send an event"
"""python-socketio would raise, or warn of an acknowledgement that nobody has asked for."""

_ACKNOWLEDGED_EVENT: Final = re.compile(r"[25](?:[0-9]{1,9}-)?([0-9]{1,15})\[")
"""The beginning of an event whose sender asks for an acknowledgement: with its number."""
_RESERVED: Final = frozenset({"connect", "disconnect", "*"})
"""Names of handlers: python-socketio would call them for a client's event of the same name."""
_EMPTY_PROBLEM: Final = "the message is no event; send a list of the event's name and its argument"


class Outlet:
    """Sends frames to one client, in the order of the calls.

    `send` waits while more than the limit stands in engine.io's queue, so a client that does not read costs bounded
    memory. The wait ends with the connection.
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
        return self._waiting

    async def send(self, event: str, body: bytes) -> None:
        """Queue one event with its JSON argument, once there is room; nothing happens when the client has gone."""
        while self._waiting > self._limit and not self.closed:
            self._has_room.clear()
            await self._has_room.wait()
        await self.send_now(event, body)

    async def send_now(self, event: str, body: bytes) -> None:
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
        """Send nothing more, and let those go who wait for room: the client has gone."""
        self.closed = True
        self._has_room.set()

    def _taken(self, size: int) -> None:
        self._waiting -= size
        if self._waiting <= self._limit // 2:
            self._has_room.set()


class Malformed:
    """Stands in the place of a message that could not be read; `problem` says why."""

    def __init__(self, problem: str) -> None:
        self.problem = problem


class _Json:
    """JSON functions in the form that python-socketio asks for."""

    @staticmethod
    def dumps(value: Any, **_: Any) -> str:
        return orjson.dumps(value).decode()

    @staticmethod
    def loads(text: str) -> Any:
        return read_json(text)


def client_packet_class(max_message_bytes: int) -> type[socketio.packet.Packet]:
    """The packet class of a server that takes messages up to this size.

    An event that cannot be read becomes ``oh_user_action`` with a `Malformed` argument, so that its sender is answered.
    """

    class ClientPacket(socketio.packet.Packet):  # type: ignore[misc] # python-socketio is not typed
        uses_binary_events = False
        json = _Json
        data: Any

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            if self.packet_type == socketio.packet.EVENT and self.data is None:
                self._set_malformed(_EMPTY_PROBLEM)  # python-socketio skips decoding where there is nothing

        def decode(self, encoded_packet: str | bytes) -> int:
            if (problem := _refusal(encoded_packet, max_message_bytes)) is not None:
                self._set_malformed(problem, encoded_packet)
                return 0
            try:
                check_value_count_now(str(encoded_packet).encode("utf-8", "surrogatepass"))
                attachments = super().decode(encoded_packet)
            except WireError as error:
                self._set_malformed(str(error), encoded_packet)
                return 0
            except (ValueError, TypeError, IndexError, RecursionError) as error:
                problem = f"the message cannot be read: {error}; send valid JSON, not nested too deeply"
                self._set_malformed(problem, encoded_packet)
                return 0
            if attachments or self.packet_type in _BINARY:
                self._set_malformed(_BINARY_PROBLEM, encoded_packet)
            elif self.packet_type not in _TAKEN:
                self._set_malformed(_TYPE_PROBLEM, encoded_packet)
            elif self.packet_type == socketio.packet.EVENT and not _is_event(self.data):
                self._set_malformed(_EMPTY_PROBLEM, encoded_packet)
            elif self.packet_type == socketio.packet.EVENT and self.data[0] in _RESERVED:
                self._set_malformed(f"event {self.data[0]!r} is reserved; send oh_user_action", encoded_packet)
            return 0

        def _set_malformed(self, problem: str, encoded_packet: object = "") -> None:
            match = _ACKNOWLEDGED_EVENT.match(encoded_packet) if isinstance(encoded_packet, str) else None
            self.packet_type = socketio.packet.EVENT
            self.namespace = None
            self.id = None if match is None else int(match[1])
            self.data = ["oh_user_action", Malformed(problem)]

    return ClientPacket


class OutgoingPacket(engineio.packet.Packet):  # type: ignore[misc] # engine.io is not typed
    """A message that is encoded already; it tells when the transport takes it, which is just before it is sent."""

    def __init__(self, event: str, body: bytes, on_taken: Callable[[int], None]) -> None:
        super().__init__(engineio.packet.MESSAGE)
        # Engine.IO message (4), Socket.IO event (2), its name and its one argument, JSON already.
        self._text = f'42["{event}",{body.decode()}]'
        self._on_taken: Callable[[int], None] | None = on_taken
        self.size = len(self._text)

    def encode(self, b64: bool = False) -> str:
        if self._on_taken is not None:
            self._on_taken(self.size)
            self._on_taken = None
        return self._text


def _refusal(packet: object, limit: int) -> str | None:
    if not isinstance(packet, str):
        return _BINARY_PROBLEM
    is_too_large = len(packet) > limit or (
        len(packet) * _MAX_UTF8_BYTES > limit and len(packet.encode("utf-8", "surrogatepass")) > limit
    )
    return too_large(limit) if is_too_large else None


def _is_event(data: object) -> bool:
    return isinstance(data, list) and len(data) > 0 and isinstance(data[0], str)
