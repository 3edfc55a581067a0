"""Who is at the other end of a socket: commands in a container, of the same user as the runner, could be there too.

A container's first process is the engine's, which has started the runner as its first child, and ends with it. What
others than these two have started comes from outside when it has no parent in the container.
"""

from __future__ import annotations

import os
import socket
import struct

TYPE_CHECKING = False  # the module typing would cost attach a part of its start
if TYPE_CHECKING:
    from typing import Optional

_CREDENTIALS = "3i"
_OUTSIDE = 0


def is_runner(connection: socket.socket) -> bool:
    """Return whether the runner listens there, for a program that was started in its container from outside.

    Anywhere else, and where this kernel does not tell, nobody is told apart.
    """
    pid = _process_of(connection)
    if os.getppid() != _OUTSIDE or pid is None:
        return True
    try:
        with open("/proc/1/task/1/children", "rb") as file:
            return file.read(64).split()[:1] == [b"%d" % pid]
    except OSError:
        return True


def is_from_outside(connection: socket.socket) -> bool:
    """Return whether it comes from outside of the runner's container, or from a program that was started from there.

    Where the runner is in no container nobody is told apart.
    """
    pid = _process_of(connection)
    if os.getppid() != 1 or pid is None or pid == _OUTSIDE:
        return True
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read(1024).rpartition(b")")[2].split()[1]) == _OUTSIDE
    except (OSError, ValueError, IndexError):
        return False


def _process_of(connection: socket.socket) -> "Optional[int]":
    """Return the id of the other process, 0 for one outside; None where this kernel says of each that it is ours."""
    try:
        given = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(_CREDENTIALS))
        pid: int = struct.unpack(_CREDENTIALS, given)[0]
    except (OSError, struct.error):
        return None
    return None if pid == os.getpid() else pid
