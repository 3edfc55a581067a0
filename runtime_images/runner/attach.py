"""The bridge: gives its standard input and output to the runner, and stays for as long as the runner keeps them.

Started once per attachment through the container engine's exec, so it imports next to nothing.
"""

from __future__ import annotations

import os
import socket
import sys
import time

from .core import handover, peers

_RETRY_SECONDS = 0.005


def bridge(path: str, wait_seconds: float) -> int:
    """Stay until the runner is done with it; return the exit code: 0, or 3 when there is none to reach in that time."""
    control = _connect(path + handover.SUFFIX, time.monotonic() + wait_seconds)
    if control is None:
        sys.stderr.write(f"no runner answers at {path}\n")
        return 3
    try:
        handover.give(control, 0, 1)
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1):  # from here on others of this user find nothing in this process
            os.dup2(null, stream)
        control.recv(1)
    except OSError:
        return 0  # the runner has ended
    return 0


def _connect(path: str, deadline: float) -> "socket.socket | None":
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(path)
            if not peers.is_runner(connection):
                raise OSError("somebody else listens")
        except OSError:
            connection.close()
            if time.monotonic() >= deadline:
                return None
            time.sleep(_RETRY_SECONDS)
        else:
            return connection
