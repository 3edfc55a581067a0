"""The bridge: copies its standard input and output to and from the runner's socket.

Started once per attachment through the container engine's exec, so it imports next to nothing.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import time

_CHUNK = 256 * 1024
_RETRY_SECONDS = 0.005


def bridge(path: str, wait_seconds: float) -> int:
    """Copy until either side ends; return the exit code (0, or 3 when there is no runner to reach in that time)."""
    connection = _connect(path, time.monotonic() + wait_seconds)
    if connection is None:
        sys.stderr.write(f"no runner answers at {path}\n")
        return 3
    source, target = 0, connection.fileno()
    os.set_blocking(target, True)
    open_ends = [source, target]
    while target in open_ends:
        readable, _, _ = select.select(open_ends, [], [])
        for end in readable:
            data = _read(end)
            if not data:
                open_ends.remove(end)
                if end == source:
                    connection.shutdown(socket.SHUT_WR)
            elif not _write(1 if end == target else target, data):
                return 0
    return 0


def _connect(path: str, deadline: float) -> "socket.socket | None":
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(path)
        except OSError:
            connection.close()
            if time.monotonic() >= deadline:
                return None
            time.sleep(_RETRY_SECONDS)
        else:
            return connection


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, _CHUNK)
    except OSError:
        return b""


def _write(descriptor: int, data: bytes) -> bool:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            select.select([], [descriptor], [])
        except OSError:
            return False
    return True
