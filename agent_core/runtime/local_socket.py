"""Connecting to a runner's socket in a folder that the sandbox can write to."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from pathlib import Path

from agent_core.runtime.runner_stream import RunnerStream


async def connect(path: Path) -> tuple[RunnerStream, asyncio.Transport] | None:
    """A stream to whoever listens at `path`; None while nobody does.

    The way there goes through a descriptor, so the path may be of any length, and a link that was put there from inside
    the sandbox is not followed to another service of this host.
    """
    channel = await _dial(path)
    if channel is None:
        return None
    loop = asyncio.get_running_loop()
    stream = RunnerStream(loop)
    try:
        transport, _ = await loop.create_unix_connection(lambda: stream, sock=channel)
    except BaseException:
        channel.close()
        raise
    return stream, transport


async def _dial(path: Path) -> socket.socket | None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
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
