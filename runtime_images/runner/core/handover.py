"""Giving the runner the ends of an exec's pipes: then no process stands between, and copies what goes through them.

The exec connects to a socket of its own beside the runner's, sends its descriptors, and stays until the runner lets go
of that connection; when the exec ends first, the runner lets go of the pipes.
"""

from __future__ import annotations

import array
import os
import socket

TYPE_CHECKING = False  # the module typing would cost attach a part of its start
if TYPE_CHECKING:
    from typing import Tuple

SUFFIX = "+"
"""Behind the path of the runner's socket: where descriptors are taken. Short, for such a path may be only so long."""

_SIZE = array.array("i").itemsize


def give(control: socket.socket, source: int, target: int) -> None:
    """Send the descriptors to read from and to write to.

    Raises:
        OSError: the other side is gone.
    """
    control.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [source, target]))])


def take(control: socket.socket) -> Tuple[int, int]:
    """Receive them; they are the caller's to close.

    Raises:
        OSError: the other side is gone, or sent something else.
    """
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
