"""Connecting to a runner's socket in a place that the sandbox can write to: no link is followed out of it."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from agent_core.runtime.channel.runner_stream import RunnerStream

_FOLDER = os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
_LAST = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC

Opened = tuple[RunnerStream, asyncio.Transport]


async def connect(path: Path) -> Opened | None:
    """A stream to whoever listens at `path`; None while nobody does.

    The way there goes through a descriptor, so the path may be of any length, and a link that was put there from inside
    the sandbox is not followed to another service of this host.
    """
    try:
        descriptor = os.open(path, _LAST)
    except OSError:
        return None
    return await _connect(descriptor)


async def connect_below(root: int, path: str, listener: int) -> Opened | None:
    """The same for an absolute `path` inside the folder `root` (a descriptor); no part of it may be a link.

    `listener`: id of the process that has to be the one that listens; another one is nobody.
    """
    *folders, name = PurePosixPath(path).parts[1:]
    try:
        with _folder(root, folders) as folder:
            descriptor = os.open(name, _LAST, dir_fd=folder)
    except OSError:
        return None
    return await _connect(descriptor, listener)


@contextmanager
def _folder(root: int, parts: list[str]) -> Iterator[int]:
    found = os.dup(root)
    try:
        for part in parts:
            below = os.open(part, _FOLDER, dir_fd=found)
            os.close(found)
            found = below
        yield found
    finally:
        os.close(found)


async def _connect(descriptor: int, listener: int | None = None) -> Opened | None:
    """Connect to the socket behind `descriptor`, which is closed."""
    channel = await _dial(descriptor)
    if channel is None:
        return None
    if listener is not None and _listener_of(channel) != listener:
        channel.close()
        return None
    loop = asyncio.get_running_loop()
    stream = RunnerStream(loop)
    try:
        transport, _ = await loop.create_unix_connection(lambda: stream, sock=channel)
    except BaseException:
        channel.close()
        raise
    return stream, transport


def _listener_of(channel: socket.socket) -> int:
    """Id of the process that listens at the other end."""
    given = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", given)[0])


async def _dial(descriptor: int) -> socket.socket | None:
    try:
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    except OSError:
        os.close(descriptor)
        return None
    try:
        channel.setblocking(False)
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            raise ConnectionRefusedError
        await asyncio.get_running_loop().sock_connect(channel, f"/proc/self/fd/{descriptor}")
    except OSError:
        channel.close()
        return None
    except BaseException:
        channel.close()
        raise
    finally:
        os.close(descriptor)
    return channel
