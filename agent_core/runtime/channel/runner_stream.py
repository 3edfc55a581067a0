"""Byte streams to a runner, and connecting to its socket in a place that the sandbox can write to."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import struct
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import cast

from agent_core.errors import SandboxLostError
from agent_core.runtime.sandbox import Attachment, Sandbox, SandboxStatus

READ_LIMIT = 256 * 1024
_OPENING = 5
_LONGEST_GREETING = 128 * 1024
_MAX_STRAY = 2000
_LAST = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = _LAST | os.O_DIRECTORY


class RunnerEndedError(Exception):
    """What the runner is in is wanted and does not run: why, in words and as a code of `SandboxError`."""

    def __init__(self, reason: str, code: str) -> None:
        super().__init__(reason)
        self.reason = reason.strip().rstrip(".")
        self.code = code


class RunnerStream(asyncio.StreamReaderProtocol):
    """One stream from a runner into a reader, which tells when the first frame begins.

    What does not begin like a frame (an engine writes its own errors there) is kept in `stray`, stderr in `errors`.
    """

    transport: asyncio.Transport

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.reader = asyncio.StreamReader(limit=READ_LIMIT, loop=loop)
        super().__init__(self.reader, loop=loop)
        self._first: asyncio.Future[bool] = loop.create_future()
        self._opening = bytearray()
        self.stray = bytearray()
        self.errors = bytearray()
        self.ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if not self._first.done():
            self._opening += data
            if len(self._opening) < _OPENING:
                return
            data = bytes(self._opening)
            self._settle(int.from_bytes(data[:4], "big") <= _LONGEST_GREETING and data[4:5] == b"{")
        if self._first.result():
            super().data_received(data)
        else:
            self.stray += data[: _MAX_STRAY - len(self.stray)]

    def eof_received(self) -> bool | None:
        self.ended = True
        self._settle(False)
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True
        self._settle(False)
        super().connection_lost(exc)

    async def first_word(self) -> bool:
        """Whether the runner writes something before the stream ends; consumes nothing. Else the stream is aborted."""
        spoke = False
        try:
            spoke = await asyncio.shield(self._first)
        finally:
            if not spoke:
                self.abort()
        return spoke

    def abort(self) -> None:
        self.transport.abort()

    def _settle(self, spoke: bool) -> None:
        if not self._first.done():
            self._first.set_result(spoke)
            if not spoke and not self.stray:
                self.stray += self._opening
            self._opening.clear()


async def attachment(
    sandbox: Sandbox, fresh: RunnerStream | None, connect: Callable[[], Awaitable[RunnerStream]]
) -> Attachment:
    """What `Sandbox.attach` gives: the stream that its start has opened, while that lasts, or else another one."""
    stream = fresh
    if stream is None or stream.ended:
        if stream is not None:
            stream.abort()  # its end alone leaves it open
        if await sandbox.poll() is not SandboxStatus.RUNNING:
            raise SandboxLostError("The sandbox is not running any more.")
        try:
            async with asyncio.timeout(sandbox.spec.limits.start_seconds):
                stream = await connect()
        except TimeoutError:
            raise SandboxLostError("The sandbox runs, but the program in it does not answer.") from None
        except RunnerEndedError as end:
            raise SandboxLostError(f"The sandbox has ended: {end.reason}.") from end
    loop = asyncio.get_running_loop()
    return Attachment(stream.reader, asyncio.StreamWriter(stream.transport, stream, stream.reader, loop))


async def connect(path: Path) -> RunnerStream | None:
    """A stream to whoever listens at `path`, of any length; None while nobody does.

    Through a descriptor: a link that was put there from inside the sandbox is not followed elsewhere.
    """
    try:
        descriptor = os.open(path, _LAST)
    except OSError:
        return None
    return await _connect(descriptor)


async def connect_below(root: int, path: str, listener: int) -> RunnerStream | None:
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


async def _connect(descriptor: int, listener: int | None = None) -> RunnerStream | None:
    loop = asyncio.get_running_loop()
    try:
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    except OSError:
        os.close(descriptor)
        return None
    try:
        try:
            channel.setblocking(False)
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                raise ConnectionRefusedError
            await loop.sock_connect(channel, f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)
        peer, *_ = struct.unpack("3i", channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
        if listener not in (None, peer):
            raise ConnectionRefusedError
        stream = RunnerStream(loop)
        await loop.create_unix_connection(lambda: stream, sock=channel)
    except OSError:
        channel.close()
        return None
    except BaseException:
        channel.close()
        raise
    return stream
