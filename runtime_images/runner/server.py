"""The runner, built from its parts: its socket accepts a server, says hello, and hands on its requests."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import sys
from typing import Callable, List, Optional, Tuple

from . import VERSION
from .attach import SUFFIX, is_from_outside, receive_pipes
from .core import facts
from .core.connection import Connection
from .core.disk_limit import DiskLimiter
from .core.freezer import Freezer
from .core.log import complain
from .core.loop import Loop, Plan
from .core.processes import adopt_orphans, hide
from .core.workers import Workers
from .requests import Requests
from .terminal.pty import close_inherited
from .tunnels.ports import SandboxPorts
from .tunnels.tunnels import TunnelRegistry
from .wire import PROTOCOL, Frame

OLD_HOME = "DRYDOCK_OLD_HOME"
"""Variable with the image's home of the user, where another one takes its place."""
_COPIED_BYTES = 64 * 1024


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
        self._incoming: Optional[socket.socket] = None
        self._idle_plan = Plan(loop)
        self._look_plan = Plan(loop)
        self._path = ""
        self._places: List[Optional[Tuple[int, int]]] = []
        self._lock = -1

    def listen(self, path: str, descriptor: int) -> None:
        """Serve at a listening descriptor, or (-1) open the sockets, for this user only, in place of a dead runner's.

        `OSError` where a live one is there.
        """
        if descriptor >= 0:
            self._watch(socket.socket(fileno=descriptor), self._serve)
        else:
            self._lock = os.open(path + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise OSError("another runner serves it") from None
            self._path = path
            self._listen_anew()
        self._start_idling()

    def close(self) -> None:
        self._stop_listening()
        if self._path:
            for path in self._paths():
                if os.path.lexists(path):
                    os.unlink(path)
            os.close(self._lock)
            self._path = ""
        self._reject_incoming()
        if self._connection is not None:
            self._connection.close()

    def _listen_anew(self) -> None:
        self._stop_listening()
        self._listen_at(self._path + SUFFIX, self._arrived)
        self._listen_at(self._path, self._serve)
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
        self._look_plan.at(1.0, self._keep_listening)

    def _listen_at(self, path: str, accepted: Callable[[socket.socket], None]) -> None:
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
        self._watch(listener, accepted)

    def _watch(self, listener: socket.socket, accepted: Callable[[socket.socket], None]) -> None:
        """Take connections; a command's in the sandbox, which has no business here, is closed at once."""

        def accept() -> None:
            try:
                stream, _ = listener.accept()
            except OSError:
                return
            if not self._path or is_from_outside(stream):  # nobody in the sandbox sees a socket that was given
                accepted(stream)
            else:
                stream.close()

        listener.setblocking(False)
        self._listeners.append(listener)
        self._loop.add_reader(listener.fileno(), accept)

    def _arrived(self, control: socket.socket) -> None:
        """Somebody is about to hand over pipes, in place of whoever was before."""
        self._reject_incoming()
        control.setblocking(False)

        def take_over() -> None:
            self._loop.remove_reader(control.fileno())
            self._incoming = None
            try:
                pipes = receive_pipes(control)
            except OSError:
                control.close()
                return
            self._serve(control, pipes)

        self._incoming = control
        self._loop.add_reader(control.fileno(), take_over)

    def _reject_incoming(self) -> None:
        if self._incoming is not None:
            self._loop.remove_reader(self._incoming.fileno())
            self._incoming.close()
            self._incoming = None

    def _serve(self, control: socket.socket, pipes: Optional[Tuple[int, int]] = None) -> None:
        self._tunnels.close()
        self._requests.thaw()  # what is left of one that is gone shall not stay frozen for the next
        before = self._connection
        self._connection = Connection(self._loop, control, pipes, self._received, self._lost)
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
        if connection is self._connection:
            (self._tunnels if "stream" in frame.message else self._requests).receive(connection, frame)

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


def furnish(old: str, new: str) -> None:
    """Make the files of the old home available in the new one; existing ones stay.

    Small files right in it, which are settings, are copied, so that they can be changed. Upper folders are made anew,
    so that something can be added; all else is linked. What cannot be had is left out.
    """
    left = 2000

    def fill(old: str, new: str, depth: int) -> None:
        nonlocal left
        with os.scandir(old) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        for entry in found:
            left -= 1
            target = os.path.join(new, entry.name)
            with contextlib.suppress(OSError):  # it is there already, or may not be read
                status = entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False) and depth <= 4 and left > 0:
                    os.mkdir(target, status.st_mode & 0o777 | 0o700)
                    fill(entry.path, target, depth + 1)
                elif depth == 1 and entry.is_file(follow_symlinks=False) and status.st_size <= _COPIED_BYTES:
                    with open(entry.path, "rb") as settings, open(target, "xb") as copy:
                        copy.write(settings.read(_COPIED_BYTES))
                    os.chmod(target, status.st_mode & 0o777 | 0o600)
                else:
                    os.symlink(entry.path, target)

    with contextlib.suppress(OSError):
        fill(old, new, 1)


def serve(
    socket_path: str,
    state_directory: str,
    workspace: str,
    idle_exit_seconds: float,
    disk_limits: Tuple[int, int],
    *,
    alone: bool,
    own_workspace: bool,
) -> int:
    """Serve until told to end; return the exit code: 0, or 1 when the socket cannot be had.

    ``socket_path`` may be ``fd:`` and the number of a descriptor that listens already. ``disk_limits`` are bytes and
    entries (0: any), with ``alone`` as in `DiskLimiter`; a workspace that is not ``own_workspace`` is somebody else's
    folder and does not count.
    """
    descriptor = int(socket_path[len("fd:") :]) if socket_path.startswith("fd:") else -1
    close_inherited(descriptor)
    hide()
    if not alone:
        adopt_orphans()
    socket_directory = [] if descriptor >= 0 else [os.path.dirname(os.path.abspath(socket_path))]
    for directory in (state_directory, workspace, *socket_directory):
        try:
            os.makedirs(directory, mode=0o700, exist_ok=True)
        except OSError as error:
            complain(f"{directory} cannot be made: {error.strerror}; the runner goes on without it")
    old_home = os.environ.pop(OLD_HOME, "/")
    if old_home != "/":
        furnish(old_home, os.environ["HOME"])
    loop = Loop()
    boot = os.urandom(8).hex()
    workers, ports = Workers(loop), SandboxPorts(boot)
    counted = [state_directory, os.environ.get("HOME", "/"), *([workspace] if own_workspace else [])]
    disk = DiskLimiter(counted, *disk_limits, alone=alone)
    requests = Requests(loop, workers, disk, Freezer(alone=alone), ports, workspace, state_directory, boot)
    server = Server(loop, requests, TunnelRegistry(loop, ports, workspace), workspace, boot, idle_exit_seconds)
    # The owner of a whole sandbox sends SIGINT. SIGTERM comes from a program in there that meant some other Python
    # (``pkill python3``), and ends the runner only where others share its processes.
    is_alone = 1 in (os.getpid(), os.getppid())
    # A handler that does nothing, and not SIG_IGN, which programs would inherit.
    loop.on_signal(signal.SIGTERM, (lambda: None) if is_alone else loop.stop)
    loop.on_signal(signal.SIGINT, loop.stop)
    loop.on_signal(signal.SIGCHLD, requests.child_changed)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        server.listen(socket_path, descriptor)
    except OSError as error:
        complain(f"the runner cannot listen at {socket_path}: {error}")
        return 1
    disk.start()
    try:
        loop.run()
    finally:
        disk.close()
        server.close()
        requests.close()
        workers.close()
        loop.close()
    return 0
