"""The runner's socket: accepts a server, says hello, and hands its requests to the dispatcher."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import sys
from typing import Callable, List, Optional, Tuple

from . import VERSION
from .attach import SUFFIX, is_from_outside, receive_pipes
from .core import facts
from .core.connection import Connection, StreamEnds
from .core.log import complain
from .core.loop import Loop, Plan
from .requests import Requests
from .tunnels.tunnels import TunnelRegistry
from .wire import PROTOCOL, Frame

_LOOK_SECONDS = 1.0


class Server:
    """Serves one server at a time: the newest connection wins, the one before is told so and closed.

    ``boot`` names this run of the runner; with 0 idle seconds it stays however long nobody attaches.
    """

    def __init__(
        self,
        loop: Loop,
        requests: Requests,
        tunnels: TunnelRegistry,
        workspace: str,
        boot: str,
        idle_exit_seconds: float,
    ) -> None:
        self._loop = loop
        self._requests = requests
        self._tunnels = tunnels
        self._workspace = workspace
        self._idle_exit_seconds = idle_exit_seconds
        self._boot = boot
        self._listeners: List[socket.socket] = []
        self._connection: Optional[Connection] = None
        self._arriving: Optional[socket.socket] = None
        self._idle_plan = Plan(loop)
        self._look_plan = Plan(loop)
        self._path = ""
        self._places: List[Optional[Tuple[int, int]]] = []
        self._lock = -1

    def listen(self, path: str) -> None:
        """Open the sockets, for this user only, in place of a dead runner's; `OSError` where a live one is there."""
        self._lock = os.open(path + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OSError("another runner serves it") from None
        self._path = path
        self._listen_anew()
        self._start_idling()

    def serve_at(self, descriptor: int) -> None:
        self._watch(socket.socket(fileno=descriptor), self._accept)
        self._start_idling()

    def close(self) -> None:
        self._stop_listening()
        if self._path:
            for path in self._paths():
                if os.path.lexists(path):
                    os.unlink(path)
            os.close(self._lock)
            self._path = ""
        self._turn_away()
        if self._connection is not None:
            self._connection.close()

    def _listen_anew(self) -> None:
        self._stop_listening()
        self._listen_at(self._path + SUFFIX, self._arrive)
        self._listen_at(self._path, self._accept)
        self._places = [_place(path) for path in self._paths()]

    def _stop_listening(self) -> None:
        for listener in self._listeners:
            self._loop.remove_reader(listener.fileno())
            listener.close()
        self._listeners = []

    def _paths(self) -> List[str]:
        return [self._path + SUFFIX, self._path]

    def _keep_listening(self) -> None:
        """While nobody is attached: reopen the sockets, which commands in the sandbox can remove or replace."""
        self._look_plan.cancel()
        if self._connection is not None:
            return
        if [_place(path) for path in self._paths()] != self._places:
            try:
                self._listen_anew()
            except OSError as error:
                complain(f"the runner cannot listen at {self._path}: {error}")
        self._look_plan.at(_LOOK_SECONDS, self._keep_listening)

    def _listen_at(self, path: str, accept: Callable[[socket.socket], None]) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError:  # whatever was put there
            os.rename(path, f"{path}.{os.urandom(4).hex()}")
        listener = socket.socket(socket.AF_UNIX)
        mask = os.umask(0o177)
        try:
            listener.bind(path)
        finally:
            os.umask(mask)
        listener.listen(8)
        self._watch(listener, accept)

    def _watch(self, listener: socket.socket, accept: Callable[[socket.socket], None]) -> None:
        listener.setblocking(False)
        self._listeners.append(listener)
        self._loop.add_reader(listener.fileno(), lambda: accept(listener))

    def _accept(self, listener: socket.socket) -> None:
        stream = self._accepted(listener)
        if stream is not None:
            self._serve(StreamEnds(stream))

    def _accepted(self, listener: socket.socket) -> Optional[socket.socket]:
        """Take a connection; a command's in the sandbox, which has no business here, is closed at once."""
        try:
            stream, _ = listener.accept()
        except OSError:
            return None
        if not self._path or is_from_outside(stream):  # nobody in the sandbox sees a socket that was given
            return stream
        stream.close()
        return None

    def _arrive(self, listener: socket.socket) -> None:
        """Somebody is about to hand over pipes, in place of whoever was before."""
        control = self._accepted(listener)
        if control is None:
            return
        self._turn_away()
        control.setblocking(False)

        def take_over() -> None:
            self._loop.remove_reader(control.fileno())
            self._arriving = None
            try:
                pipes = receive_pipes(control)
            except OSError:
                control.close()
                return
            self._serve(StreamEnds(control, pipes))

        self._arriving = control
        self._loop.add_reader(control.fileno(), take_over)

    def _turn_away(self) -> None:
        if self._arriving is not None:
            self._loop.remove_reader(self._arriving.fileno())
            self._arriving.close()
            self._arriving = None

    def _serve(self, ends: StreamEnds) -> None:
        self._tunnels.close()
        before = self._connection
        self._connection = Connection(self._loop, ends, self._received, self._lost)
        if before is not None:
            before.end({"error": {"code": "replaced", "message": "another server has attached to this runner"}})
        self._idle_plan.cancel()
        try:
            self._connection.start()
        except OSError:  # what was handed over cannot be waited for: an ordinary file
            self._connection.close()
            return
        hello = {
            "protocol": PROTOCOL,
            "runner": VERSION,
            "python": ".".join(str(part) for part in sys.version_info[:3]),
            "pid": os.getpid(),
            "boot": self._boot,
            "workspace": self._workspace,
            "user": facts.username(),
            "hostname": os.uname().nodename,
            "tunnels": True,
            "programs": True,
        }
        self._connection.send({"hello": hello})

    def _received(self, connection: Connection, frame: Frame) -> None:
        if connection is not self._connection:
            return
        if "stream" in frame.message:
            self._tunnels.receive(connection, frame)
        else:
            self._requests.receive(connection, frame)

    def _lost(self, connection: Connection) -> None:
        if connection is self._connection:
            self._connection = None
            self._tunnels.close()
            self._start_idling()

    def _start_idling(self) -> None:
        if self._path:
            self._keep_listening()
        if self._idle_exit_seconds > 0:
            self._idle_plan.at(self._idle_exit_seconds, self._loop.stop)


def _place(path: str) -> Optional[Tuple[int, int]]:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def watch_signals(loop: Loop, requests: Requests) -> None:
    """Let SIGINT end the runner and SIGCHLD reach the shells; SIGTERM ends it only where others share its processes.

    The owner of a whole sandbox sends SIGINT. SIGTERM comes from a program in there that meant some other Python
    (``pkill python3``).
    """
    is_alone = 1 in (os.getpid(), os.getppid())
    # A handler that does nothing, and not SIG_IGN, which programs would inherit.
    loop.on_signal(signal.SIGTERM, (lambda: None) if is_alone else loop.stop)
    loop.on_signal(signal.SIGINT, loop.stop)
    loop.on_signal(signal.SIGCHLD, requests.child_changed)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
