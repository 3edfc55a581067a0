"""Connections to ports and programs of the sandbox, carried in frames of the server's stream, each with a window.

Frames of a tunnel have the key ``stream`` (the server's number for it) instead of ``id``. From the server: ``open``
(``{"port": n}``, or ``{"program": {"command": [...], "env": {...}, "cwd": "..."}}``), an attachment (data), ``end`` (no
more data follows), ``credit`` (so many bytes more may be sent to it), ``reset``. To the server: ``opened``, an
attachment, ``end`` (of a program with ``last_words``, the end of what it wrote to its standard error), ``credit``, or
``error``, with which the tunnel is gone; it is gone as well when both sides have said ``end``. Either side begins with
`TUNNEL_WINDOW` bytes of credit, and data wait for the other frames of the connection, never the other way round: a
download does not delay a command.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import socket
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional

from ..core import processes
from ..core.connection import Connection
from ..core.loop import Loop, Plan, read_ready
from ..wire import TUNNEL_CHUNK, TUNNEL_WINDOW, Frame
from .ports import SandboxPorts

TUNNEL_LIMIT = 256
_ARGUMENTS_LIMIT = 1000


class TunnelRegistry:
    """The present connection's tunnels by number; all end with their server.

    ``workspace`` is the default working directory of programs.
    """

    def __init__(self, loop: Loop, ports: SandboxPorts, workspace: str) -> None:
        self._loop = loop
        self._ports = ports
        self._workspace = workspace
        self._open: Dict[int, Tunnel] = {}
        self._connection: Optional[Connection] = None

    def receive(self, connection: Connection, frame: Frame) -> None:
        """Serve a frame of a tunnel; one for a tunnel that is gone is ignored."""
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
        for tunnel in list(self._open.values()):
            tunnel.close()

    def _begin(self, connection: Connection, number: int, args: Any) -> None:
        if number in self._open:
            return
        tunnel = Tunnel(self._loop, connection, number, self._ended)
        order = args if isinstance(args, dict) else {}
        if len(self._open) >= TUNNEL_LIMIT:
            tunnel.fail("busy", f"there are {TUNNEL_LIMIT} connections already")
        else:
            self._open[number] = tunnel
            if "program" in order:
                tunnel.start(order["program"], self._workspace)
            else:
                tunnel.connect(order.get("port"), self._ports)

    def _ended(self, tunnel: Tunnel) -> None:
        if self._open.get(tunnel.number) is tunnel:
            del self._open[tunnel.number]

    def _go_on(self) -> None:
        for tunnel in list(self._open.values()):
            tunnel.go_on()


class Tunnel:
    """One connection to a port, or to the input and output of a program: bytes both ways, in bounded memory.

    A program ends with its tunnel, together with what it has started in its session.
    """

    def __init__(self, loop: Loop, connection: Connection, number: int, ended: Callable[[Tunnel], None]) -> None:
        self.number = number
        self._loop = loop
        self._connection = connection
        self._ended = ended
        self._socket: Optional[socket.socket] = None
        self._connecting = Plan(loop)
        self._credit = TUNNEL_WINDOW  # what may still be sent to the server
        self._granted = TUNNEL_WINDOW  # what the server may still send
        self._written = 0  # of that, what has gone on and is not granted anew yet
        self._out: Deque[memoryview] = deque()
        self._is_connected = False
        self._is_reading = False
        self._server_ended = False
        self._port_ended = False
        self._program = 0
        self._errors = -1
        self._last_words = b""

    def connect(self, port: Any, ports: SandboxPorts) -> None:
        if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
            self.fail("bad_request", "port must be a whole number from 1 to 65535")
            return
        tried: List[str] = []
        left = ports.addresses_of(port)

        def try_next(reason: str) -> None:
            left.extend([] if left or not tried else ports.addresses_of(port, tried))
            if left:
                tried.append(left.pop(0))
                self._connect(port, tried[-1], try_next)
            else:
                self.fail("refused", f"port {port} takes no connection: {reason}")

        try_next("nothing of this sandbox listens there")

    def start(self, order: Any, workspace: str) -> None:
        problem = _problem(order)
        if problem:
            self.fail("bad_request", problem)
            return
        command: List[str] = order["command"]
        environment = dict(os.environ, **(order.get("env") or {}))
        found = shutil.which(command[0], path=environment.get("PATH", os.defpath))
        if found is None:
            self.fail("not_found", f"there is no program {command[0]!r} in the sandbox")
            return
        try:
            self._socket = self._spawn([found, *command[1:]], environment, order.get("cwd") or workspace)
        except (OSError, ValueError) as error:
            self.fail("failed", f"the program {command[0]!r} cannot be started: {error}")
            return
        self._connected()

    def take(self, data: bytes) -> None:
        self._granted -= len(data)
        if self._granted < 0 or self._server_ended:
            self.fail("protocol", "more was sent than was granted")
            return
        self._out.append(memoryview(data))
        if self._is_connected:
            self._write()

    def server_ended(self) -> None:
        self._server_ended = True
        if self._is_connected and not self._out:
            self._shut()

    def credit(self, size: int) -> None:
        self._credit += size
        self.go_on()

    def go_on(self) -> None:
        if self._is_connected and not self._port_ended and not self._is_reading and self._credit > 0:
            self._set_reading(True)

    def fail(self, code: str, message: str) -> None:
        self._connection.send({"stream": self.number, "error": {"code": code, "message": message}})
        self.close()

    def close(self) -> None:
        """Close at once; the other end sees a reset where data was lost."""
        self._connecting.cancel()
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._loop.remove_writer(self._socket.fileno())
            self._socket.close()
            self._socket = None
        self._out.clear()
        self._is_connected = False
        self._ended(self)
        if self._errors >= 0:
            self._loop.remove_reader(self._errors)
            os.close(self._errors)
            self._errors = -1
        pid, self._program = self._program, 0
        if pid:
            processes.kill_family(pid)
            processes.signal_group(pid, signal.SIGKILL)

    def _connect(self, port: int, address: str, try_next: Callable[[str], None]) -> None:
        try:
            self._socket = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        except OSError as error:  # no IPv6 here
            try_next(error.strerror or str(error))
            return
        self._socket.setblocking(False)

        def failed(reason: str) -> None:
            self._connecting.cancel()
            if self._socket is not None:
                self._loop.remove_writer(self._socket.fileno())
                self._socket.close()
                self._socket = None
            try_next(reason)

        def settled() -> None:
            if self._socket is None:
                return
            problem = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            is_with_itself = False  # which the kernel makes by chance where nobody listens
            with contextlib.suppress(OSError):
                is_with_itself = self._socket.getsockname() == self._socket.getpeername()
            if problem:
                failed(os.strerror(problem))
            elif is_with_itself:
                failed("nothing listens there")
            else:
                self._connected()

        problem = self._socket.connect_ex((address, port))
        if problem not in (0, errno.EINPROGRESS):
            failed(os.strerror(problem))
            return
        self._connecting.at(5.0, lambda: failed("it does not answer"))
        self._loop.add_writer(self._socket.fileno(), settled)

    def _connected(self) -> None:
        self._connecting.cancel()
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

    def _set_reading(self, enabled: bool) -> None:
        if self._socket is None:
            return
        self._is_reading = enabled
        if enabled:
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
        else:
            self._end()

    def _end(self) -> None:
        message: Dict[str, Any] = {"stream": self.number, "end": True}
        if self._program:
            self._listen()
            message["last_words"] = self._last_words.decode("utf-8", "replace")
        self._port_ended = True
        self._set_reading(False)
        self._connection.send(message)
        self._close_if_over()

    def _broke(self, error: OSError, *, is_reading: bool) -> None:
        if not self._program:
            self.fail("reset", f"the connection to the port broke: {error.strerror}")
            return
        # Input for a program that reads no more is dropped; what it has printed still counts.
        self._grant(sum(map(len, self._out)))
        self._out.clear()
        if is_reading:
            self._end()

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

    def _spawn(self, command: List[str], environment: Dict[str, str], cwd: str) -> socket.socket:
        import subprocess  # only here: the runner starts faster without it

        ours, its = socket.socketpair()
        errors, its_errors = os.pipe()
        try:
            process = subprocess.Popen(
                command,
                stdin=its.fileno(),
                stdout=its.fileno(),
                stderr=its_errors,
                cwd=cwd,
                env=environment,
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            os.close(errors)
            raise
        finally:
            its.close()
            os.close(its_errors)
        process.returncode = 0  # the runner collects all its dead children itself
        self._program, self._errors = process.pid, errors
        os.set_blocking(errors, False)
        self._loop.add_reader(errors, self._listen)
        ours.setblocking(False)
        return ours

    def _listen(self) -> None:
        data = read_ready(self._errors, 64 * 1024)
        if data is None:
            return
        if not data:
            self._loop.remove_reader(self._errors)
        self._last_words = (self._last_words + data)[-2000:]


def _problem(order: Any) -> str:
    if not isinstance(order, dict):
        return "program must be an object"
    command, cwd = order.get("command"), order.get("cwd")
    environment: object = order.get("env")
    if not isinstance(command, list) or not 0 < len(command) <= _ARGUMENTS_LIMIT or not all(map(_is_text, command)):
        return f"command must be a list of 1 to {_ARGUMENTS_LIMIT} texts"
    if environment is not None and not (
        isinstance(environment, dict)
        and all(_is_text(text) for pair in environment.items() for text in pair)
        and all(name and "=" not in name for name in environment)
    ):
        return "env must be an object of texts"
    if cwd is not None and not _is_text(cwd):
        return "cwd must be a path"
    return ""


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value
