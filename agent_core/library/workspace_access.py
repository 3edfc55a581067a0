"""`WorkspaceAccess`: files and ports of a conversation's sandbox, for its program."""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar

from agent_core.errors import SandboxError
from agent_core.library.run_loop import RunLoop
from agent_core.runtime.channel.tunnels import OpenPort, PortConnection, listening
from agent_core.runtime.transfers import PART, reading, writing

T = TypeVar("T")

MAX_DOWNLOAD = 16 * 1024**3
MAX_READ = 64 * 1024**2

_disk = ThreadPoolExecutor(max_workers=2, thread_name_prefix="carrying")


class WorkspaceAccess:
    """Files and ports of a conversation's sandbox; runs in the conversation's loop."""

    def __init__(self, work: RunLoop) -> None:
        self._work = work
        self._carrying: set[asyncio.Task[None]] = set()  # each ends with either of its sides, and with the conversation

    async def upload(self, source: Path, to: str) -> list[str]:
        files = await _in_thread(lambda: list(_files(source)))
        stored: list[str] = []
        async with self._work.sessions.sandbox_access() as sandbox:
            for place, name in files:
                path = "/".join(part for part in (to.rstrip("/"), name) if part)
                incoming = await writing(sandbox, path)
                try:
                    async for part in _parts(place):
                        await incoming.write(part)
                    await incoming.keep()
                finally:
                    incoming.drop()
                stored.append(f"{sandbox.working_dir.rstrip('/')}/{path.removeprefix(sandbox.working_dir).strip('/')}")
        return stored

    async def download(self, path: str, target: Path, max_bytes: int) -> Path:
        async with self._work.sessions.sandbox_access() as sandbox, reading(sandbox, path) as found:
            too_large = SandboxError(
                f"{path or 'The workspace'} has more than {max_bytes} bytes.", code="too_large", fix="Raise max_bytes."
            )
            if found.size is not None and found.size > max_bytes:
                raise too_large
            name = found.name if found.size is not None else f"{found.name or 'workspace'}.zip"
            saving = await _in_thread(lambda: _Saving(target, name))
            size = 0
            try:
                async for part in found.parts():
                    size += len(part)
                    if size > max_bytes:
                        raise too_large
                    await _in_thread(partial(saving.write, part))
                if found.size is not None and size != found.size:
                    raise SandboxError(f"{path} became shorter while it was read.", code="changed", fix="Try again.")
                return await _in_thread(saving.keep)
            finally:
                await _in_thread(saving.drop)

    async def read(self, path: str, max_bytes: int) -> bytes:
        async with self._work.sessions.sandbox_access() as sandbox, reading(sandbox, path) as found:
            if found.size is None:
                raise SandboxError(f"{path} is a folder.", code="not_a_file", fix="Use download for folders.")
            if found.size > max_bytes:
                raise SandboxError(
                    f"{path} has more than {max_bytes} bytes.",
                    code="too_large",
                    fix="Raise max_bytes, or use download.",
                )
            data = b"".join([part async for part in found.parts()])
            if len(data) != found.size:
                raise SandboxError(f"{path} became shorter while it was read.", code="changed", fix="Try again.")
            return data

    async def listening(self) -> list[OpenPort]:
        async with self._work.sessions.sandbox_access() as sandbox:
            return await listening(sandbox)

    async def connect(self, port: int) -> socket.socket:
        """One end of a pair of sockets; all bytes are carried between the other one and the port."""
        session = self._work.sessions.ready_at_work
        sandbox = session.sandbox if session is not None else await self._work.sandbox.lend()
        connection = await sandbox.connect_port(port)
        own, callers = socket.socketpair()
        task = asyncio.create_task(_carry(connection, own), name="port-connection")
        self._carrying.add(task)
        task.add_done_callback(self._carrying.discard)
        return callers


async def _parts(place: Path) -> AsyncIterator[bytes]:
    file: BinaryIO = await _in_thread(lambda: place.open("rb"))
    try:
        while part := await _in_thread(partial(file.read, PART)):
            yield part
    finally:
        file.close()


def _files(source: Path) -> Iterator[tuple[Path, str]]:
    """The files of a folder with their paths from its parent on; or the one file."""
    if not source.is_dir():
        yield source, source.name
        return
    root = source.resolve()
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            place = Path(folder, name)
            if place.is_file() and place.resolve().is_relative_to(root):
                yield place, f"{root.name}/{place.relative_to(root).as_posix()}"


class _Saving:
    """A file of this host that appears whole, in the folder that was opened once: links gain nothing. Blocking."""

    def __init__(self, target: Path, name: str) -> None:
        folder, self._name = (target, name) if target.is_dir() else (target.parent, target.name)
        if self._name in ("", ".", "..") or "/" in self._name or "\0" in self._name:
            raise IsADirectoryError(errno.EISDIR, "there is no name for it: name a file, not a folder", str(target))
        self._place = folder / self._name
        self._scratch = f".{secrets.token_hex(8)}.part"
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(self._scratch, flags, 0o600, dir_fd=self._folder)
        except BaseException:
            os.close(self._folder)
            raise
        self._file = open(descriptor, "wb")  # noqa: SIM115 - closed by `drop`
        self._is_saved = False

    def write(self, part: bytes) -> None:
        self._file.write(part)

    def keep(self) -> Path:
        self._file.close()
        os.replace(self._scratch, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        self._is_saved = True
        return self._place

    def drop(self) -> None:
        try:
            self._file.close()
            if not self._is_saved:
                os.unlink(self._scratch, dir_fd=self._folder)
        finally:
            os.close(self._folder)


async def _in_thread(work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(_disk, work)


async def _carry(connection: PortConnection, own: socket.socket) -> None:
    reader, writer = await asyncio.open_connection(sock=own)

    async def send() -> None:
        while data := await reader.read(64 * 1024):
            await connection.write(data)
        connection.end()

    async def receive() -> None:
        while data := await connection.read():
            writer.write(data)
            await writer.drain()
        writer.write_eof()

    try:
        async with asyncio.TaskGroup() as directions:
            directions.create_task(send(), name="port-connection-out")
            directions.create_task(receive(), name="port-connection-in")
    except* (SandboxError, OSError):
        pass  # either side may be gone: the caller sees the end, which is all that can be said on a socket
    finally:
        connection.close()
        writer.close()
