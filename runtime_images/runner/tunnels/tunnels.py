"""The tunnels of the connection at hand, by their numbers: frames go to the right one, and all end with the server."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

from ..core.connection import Connection
from ..core.loop import Loop
from ..wire import Frame
from .ports import SandboxPorts
from .tunnel import Ended, Tunnel

TUNNEL_LIMIT = 256

Maker = Callable[[Loop, Connection, int, Ended], Tunnel]


class Switchboard:
    """The tunnels of the connection at hand."""

    def __init__(self, loop: Loop, ports: SandboxPorts, programs: Maker) -> None:
        """``programs`` makes the tunnels of programs."""
        self._loop = loop
        self._ports = ports
        self._programs = programs
        self._open: Dict[int, Tunnel] = {}
        self._connection: Optional[Connection] = None

    def receive(self, connection: Connection, frame: Frame) -> None:
        """Serve a frame of a tunnel; one for a tunnel that is gone is left alone."""
        if connection is not self._connection:
            self.close()
            self._connection = connection
            connection.on_room = self._go_on
        message = frame.message
        number = message.get("stream")
        if isinstance(number, bool) or not isinstance(number, int):
            return
        tunnel = self._open.get(number)
        if "open" in message:
            self._begin(connection, number, message["open"])
        elif tunnel is None:
            return
        elif frame.blob is not None:
            tunnel.take(frame.blob)
        elif "end" in message:
            tunnel.server_ended()
        elif "reset" in message:
            tunnel.close()
        elif isinstance(message.get("credit"), int):
            tunnel.credit(message["credit"])

    def close(self) -> None:
        """End all tunnels: their server has gone."""
        for tunnel in list(self._open.values()):
            tunnel.close()

    def _begin(self, connection: Connection, number: int, given: Any) -> None:
        if number in self._open:
            return
        order = given if isinstance(given, dict) else {}
        make = self._programs if "program" in order else Tunnel
        tunnel = make(self._loop, connection, number, self._ended)
        if len(self._open) >= TUNNEL_LIMIT:
            tunnel.fail("busy", f"there are {TUNNEL_LIMIT} connections already")
        else:
            self._open[number] = tunnel
            tunnel.begin(order, self._ports)

    def _ended(self, tunnel: Tunnel) -> None:
        if self._open.get(tunnel.number) is tunnel:
            del self._open[tunnel.number]

    def _go_on(self) -> None:
        for tunnel in list(self._open.values()):
            tunnel.go_on()
