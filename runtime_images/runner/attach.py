"""Attaching to the runner: an exec of the container engine hands over its pipes, so that nothing stands between.

The exec connects to a socket of its own beside the runner's, sends its descriptors, and stays until the runner closes
that connection; when the exec ends first, the runner closes the pipes. It is started often, so this module imports next
to nothing.

Commands in a container run as the runner's user and can reach these sockets, too. A container's first process is the
engine's, which started the runner as its first child and ends with it. A process without a parent in the container that
is neither of them comes from outside.
"""

from __future__ import annotations

import array
import os
import socket
import struct
import sys
import time

TYPE_CHECKING = False  # the module typing would cost a part of the start
if TYPE_CHECKING:
    from typing import Optional, Tuple

SUFFIX = "+"
"""Of the socket that takes descriptors; short, for socket paths are limited."""

_SIZE = array.array("i").itemsize
_CREDENTIALS = "3i"
_OUTSIDE = 0


def bridge(path: str, wait_seconds: float) -> int:
    """Give standard input and output to the runner, and stay for as long as it keeps them.

    Returns the exit code: 0, or 3 when no runner is reached in that time.
    """
    control = _connect(path + SUFFIX, time.monotonic() + wait_seconds)
    if control is None:
        sys.stderr.write(f"no runner answers at {path}\n")
        return 3
    try:
        control.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1]))])
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1):  # from here on others of this user find nothing in this process
            os.dup2(null, stream)
        control.recv(1)
    except OSError:
        return 0  # the runner has ended
    return 0


def receive_pipes(control: socket.socket) -> Tuple[int, int]:
    """Receive the descriptors to read from and to write to, which the caller closes; else `OSError`."""
    _, ancillary, _, _ = control.recvmsg(1, socket.CMSG_SPACE(2 * _SIZE))
    found = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) - len(data) % _SIZE])
    if len(found) != 2:
        for descriptor in found:
            os.close(descriptor)
        raise OSError(0, "no pair of descriptors came")
    for descriptor in found:
        os.set_inheritable(descriptor, False)
    return found[0], found[1]


def is_from_outside(connection: socket.socket) -> bool:
    """Return whether it, or what started it, is from outside the container; True where the runner is in none."""
    pid = _process_of(connection)
    if os.getppid() != 1 or pid is None or pid == _OUTSIDE:
        return True
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read(1024).rpartition(b")")[2].split()[1]) == _OUTSIDE
    except (OSError, ValueError, IndexError):
        return False


def _connect(path: str, deadline: float) -> Optional[socket.socket]:
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(path)
            if not _is_runner(connection):
                raise OSError("somebody else listens")
        except OSError:
            connection.close()
            if time.monotonic() >= deadline:
                return None
            time.sleep(0.005)
        else:
            return connection


def _is_runner(connection: socket.socket) -> bool:
    """Whether the runner listens there, for a program that came from outside; True where that cannot be told."""
    pid = _process_of(connection)
    if os.getppid() != _OUTSIDE or pid is None:
        return True
    try:
        with open("/proc/1/task/1/children", "rb") as file:
            return file.read(64).split()[:1] == [b"%d" % pid]
    except OSError:
        return True


def _process_of(connection: socket.socket) -> Optional[int]:
    """The id of the other process, 0 for one outside; None where this kernel gives its own for each."""
    try:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(_CREDENTIALS))
        pid: int = struct.unpack(_CREDENTIALS, credentials)[0]
    except (OSError, struct.error):
        return None
    return None if pid == os.getpid() else pid
