"""Connections to ports of the sandbox, carried in frames of the server's stream: many at once, each with a window.

Frames of a tunnel have the key ``stream`` (the server's number for it) instead of ``id``. From the server: ``open``
(``{"port": n}``, or a program, see `programs`), an attachment (data), ``end`` (no more data follows), ``credit`` (so
many bytes more may be sent to it), ``reset``. To the server: ``opened``, an attachment, ``end``, ``credit``, or
``error``, with which the tunnel is gone; it is gone as well when both sides have said ``end``. Either side begins with
`TUNNEL_WINDOW` bytes of credit, and data wait for the other frames of the connection, never the other way round: a
download does not delay a command.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Mapping, Optional

from ..core.connection import Connection
from ..core.loop import Loop, Timer
from ..wire import TUNNEL_CHUNK, TUNNEL_WINDOW
from .ports import SandboxPorts

_CONNECT_SECONDS = 5.0

Ended = Callable[["Tunnel"], None]


class Tunnel:
    """One connection to a port: bytes both ways, in bounded memory."""

    def __init__(self, loop: Loop, connection: Connection, number: int, ended: Ended) -> None:
        self.number = number
        self._loop = loop
        self._connection = connection
        self._ended = ended
        self._socket: Optional[socket.socket] = None
        self._timer: Optional[Timer] = None
        self._credit = TUNNEL_WINDOW  # what may still be sent to the server
        self._granted = TUNNEL_WINDOW  # what the server may still send
        self._written = 0  # of that, what has gone on and is not granted anew yet
        self._out: Deque[memoryview] = deque()
        self._is_connected = False
        self._is_reading = False
        self._server_ended = False
        self._port_ended = False

    def begin(self, given: Mapping[str, Any], ports: SandboxPorts) -> None:
        """Connect to the port, wherever it is in this sandbox; what comes of it is told the server."""
        port = given.get("port")
        if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
            self.fail("bad_request", "port must be a whole number from 1 to 65535")
        else:
            self._open(port, ports)

    def carry(self, stream: socket.socket) -> None:
        """Carry this connection, which is there already."""
        self._socket = stream
        self._connected()

    def _open(self, port: int, ports: SandboxPorts) -> None:
        tried: List[str] = []
        left = ports.addresses_of(port)

        def next_one(reason: str) -> None:
            left.extend([] if left or not tried else ports.addresses_of(port, tried))
            if left:
                tried.append(left.pop(0))
                self._connect(port, tried[-1], next_one)
            else:
                self.fail("refused", f"port {port} takes no connection: {reason}")

        next_one("nothing of this sandbox listens there")

    def take(self, data: bytes) -> None:
        """Pass data from the server on."""
        self._granted -= len(data)
        if self._granted < 0 or self._server_ended:
            self.fail("protocol", "more was sent than was granted")
            return
        self._out.append(memoryview(data))
        if self._is_connected:
            self._write()

    def server_ended(self) -> None:
        """Note that nothing more comes from the server."""
        self._server_ended = True
        if self._is_connected and not self._out:
            self._shut()

    def credit(self, size: int) -> None:
        """Allow so many bytes more towards the server."""
        self._credit += size
        self.go_on()

    def go_on(self) -> None:
        """Read again, if that was put off."""
        if self._is_connected and not self._port_ended and not self._is_reading and self._credit > 0:
            self._set_reading(True)

    def fail(self, code: str, message: str) -> None:
        """Tell the server the tunnel's end, and close."""
        self._connection.send({"stream": self.number, "error": {"code": code, "message": message}})
        self.close()

    def close(self) -> None:
        """Close at once; the other end sees a reset where data got lost."""
        if self._timer is not None:
            self._timer.cancel()
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._loop.remove_writer(self._socket.fileno())
            self._socket.close()
            self._socket = None
        self._out.clear()
        self._is_connected = False
        self._ended(self)

    def _connect(self, port: int, address: str, next_one: Callable[[str], None]) -> None:
        try:
            self._socket = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        except OSError as error:  # no IPv6 here
            next_one(error.strerror or str(error))
            return
        self._socket.setblocking(False)

        def failed(reason: str) -> None:
            if self._timer is not None:
                self._timer.cancel()
            if self._socket is not None:
                self._loop.remove_writer(self._socket.fileno())
                self._socket.close()
                self._socket = None
            next_one(reason)

        def settled() -> None:
            if self._socket is None:
                return
            problem = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if problem:
                failed(os.strerror(problem))
            elif _is_with_itself(self._socket):
                failed("nothing listens there")
            else:
                self._connected()

        problem = self._socket.connect_ex((address, port))
        if problem not in (0, errno.EINPROGRESS):
            failed(os.strerror(problem))
            return
        self._timer = self._loop.call_later(_CONNECT_SECONDS, lambda: failed("it does not answer"))
        self._loop.add_writer(self._socket.fileno(), settled)

    def _connected(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._socket is None:
            return
        self._loop.remove_writer(self._socket.fileno())
        if self._socket.family != socket.AF_UNIX:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._is_connected = True
        self._connection.send({"stream": self.number, "opened": True})
        self._set_reading(True)
        if self._out or self._server_ended:
            self._write()

    def _set_reading(self, wanted: bool) -> None:
        if self._socket is None:
            return
        self._is_reading = wanted
        if wanted:
            self._loop.add_reader(self._socket.fileno(), self._read)
        else:
            self._loop.remove_reader(self._socket.fileno())

    def _read(self) -> None:
        if self._socket is None:
            return
        if self._credit <= 0 or not self._connection.has_room:
            self._set_reading(False)
            return
        try:
            data = self._socket.recv(min(TUNNEL_CHUNK, self._credit))
        except BlockingIOError:
            return
        except OSError as error:
            self._broke(error, is_reading=True)
            return
        if data:
            self._credit -= len(data)
            self._connection.send({"stream": self.number}, data)
            return
        self._said_all()

    def _said_all(self) -> None:
        self._port_ended = True
        self._set_reading(False)
        self._connection.send({"stream": self.number, **self._ending()})
        self._close_if_over()

    def _ending(self) -> Dict[str, Any]:
        """What is said at the end of what comes from the other side."""
        return {"end": True}

    def _broke(self, error: OSError, *, is_reading: bool) -> None:
        """The other side is gone, as reading from it or writing to it has shown."""
        del is_reading
        self.fail("reset", f"the connection to the port broke: {error.strerror}")

    def _write(self) -> None:
        while self._out and self._socket is not None:
            view = self._out[0]
            try:
                sent = self._socket.send(view)
            except BlockingIOError:
                self._loop.add_writer(self._socket.fileno(), self._write)
                return
            except OSError as error:
                self._broke(error, is_reading=False)
                return
            if sent == len(view):
                self._out.popleft()
            else:
                self._out[0] = view[sent:]
            self._grant(sent)
        if self._socket is not None:
            self._loop.remove_writer(self._socket.fileno())
            if self._server_ended:
                self._shut()

    def _grant(self, size: int) -> None:
        self._written += size
        if self._written >= TUNNEL_WINDOW // 2 and not self._server_ended:
            self._granted += self._written
            self._connection.send({"stream": self.number, "credit": self._written})
            self._written = 0

    def _shut(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):  # it is gone already, which reading tells
                self._socket.shutdown(socket.SHUT_WR)
            self._close_if_over()

    def _close_if_over(self) -> None:
        if self._port_ended and self._server_ended and not self._out:
            self.close()


def _is_with_itself(connection: socket.socket) -> bool:
    """True for a connection whose two ends are one, which the kernel makes by chance where nobody listens."""
    try:
        return bool(connection.getsockname() == connection.getpeername())
    except OSError:
        return False
