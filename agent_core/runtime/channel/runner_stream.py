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

from agent_core.runtime.sandbox import Attachment

READ_LIMIT = 256 * 1024
_OPENING = 5
_LONGEST_GREETING = 128 * 1024
_STRAY_KEPT = 2000


class RunnerStream(asyncio.StreamReaderProtocol):
    """Feeds a reader, and tells when the runner has said its first word or the stream has ended before.

    Providers use `first_word` to know that a sandbox is READY without consuming anything. What does not begin like a
    frame is no word of a runner (an engine writes its own errors there); the beginning of it is kept in `stray`, and in
    `errors` what came beside the stream, where it has a way for that.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.reader = asyncio.StreamReader(limit=READ_LIMIT, loop=loop)
        super().__init__(self.reader, loop=loop)
        self._first: asyncio.Future[bool] = loop.create_future()
        self._opening = bytearray()
        self.stray = bytearray()
        self.errors = bytearray()
        self.ended = False

    def data_received(self, data: bytes) -> None:
        self.deliver(data)

    def deliver(self, data: bytes) -> None:
        """Pass on bytes that the runner wrote."""
        if not self._first.done():
            self._opening += data
            if len(self._opening) < _OPENING:
                return
            data = bytes(self._opening)
            spoke = int.from_bytes(data[:4], "big") <= _LONGEST_GREETING and data[4:5] == b"{"
            self._settle(spoke)
        if self._first.result():
            super().data_received(data)
        else:
            self.stray += data[: _STRAY_KEPT - len(self.stray)]

    def eof_received(self) -> bool | None:
        self.ended = True
        self._settle(False)
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True
        self._settle(False)
        super().connection_lost(exc)

    async def first_word(self) -> bool:
        """Wait until the runner has written something (True) or the stream has ended without (False)."""
        return await asyncio.shield(self._first)

    def attachment(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> Attachment:
        """The pair that a channel works with."""
        return Attachment(self.reader, asyncio.StreamWriter(transport, self, self.reader, loop))

    def _settle(self, spoke: bool) -> None:
        if not self._first.done():
            self._first.set_result(spoke)
            if not spoke and not self.stray:
                self.stray += self._opening
            self._opening.clear()


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
