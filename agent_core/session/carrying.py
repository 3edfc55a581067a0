"""Files that a program puts into its conversation's workspace, or takes out of it, byte for byte."""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from agent_core.errors import SandboxError
from agent_core.runtime.transfers import PART, reading, writing
from agent_core.session.conversation_loop import ConversationLoop

T = TypeVar("T")

MAX_DOWNLOAD = 16 * 1024**3

_disk = ThreadPoolExecutor(max_workers=2, thread_name_prefix="carrying")


class Carrying(ABC):
    """The part of a `Conversation` that moves files."""

    _work: ConversationLoop

    def upload(self, source: str | Path, to: str = "") -> list[str]:
        """Put a file of this host, or a folder with all files in it, into the workspace; returns their paths there.

        `to` is the folder below the workspace, which is made where it is missing. A file that is there is replaced;
        each is there whole or not at all. Links to folders, and those that lead out of the folder, are passed over.

        Raises:
            OSError: the source cannot be read.
            ToolError, SandboxError: a file cannot be stored, or would be outside of the workspace.
        """
        return self._do(_upload(self._work, Path(source), to))

    def download(self, path: str, target: str | Path, *, max_bytes: int = MAX_DOWNLOAD) -> Path:
        """Save a file of the workspace, or a folder as a ZIP file; returns where it is.

        `target` is the name that it gets, or a folder for it, under the last name of `path`: nothing that the sandbox
        says has a part in where it is written. It is there whole or not at all, in place of what was there; a link
        there is replaced, not followed. Only its owner may read it.

        Raises:
            OSError: it cannot be written.
            ToolError, SandboxError: there is no such file in the workspace, it changed while it was read, or it has
                more than `max_bytes` (``too_large``).
        """
        return self._do(_download(self._work, path, Path(target), max_bytes))

    @abstractmethod
    def _do(self, work: Coroutine[Any, Any, T]) -> T: ...


async def _upload(work: ConversationLoop, source: Path, to: str) -> list[str]:
    files = await _in_thread(lambda: list(_files(source)))
    stored: list[str] = []
    async with work.sessions.sandbox_access() as sandbox:
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


async def _download(work: ConversationLoop, path: str, target: Path, max_bytes: int) -> Path:
    async with work.sessions.sandbox_access() as sandbox, reading(sandbox, path) as found:
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


class _Saving:
    """A file of this host that is there under its name once it is whole. Blocking.

    The folder is opened once, and everything is done in that one: whoever exchanges what leads there meanwhile, or has
    put a link in the way, gains nothing.
    """

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
        self._is_kept = False

    def write(self, part: bytes) -> None:
        self._file.write(part)

    def keep(self) -> Path:
        self._file.close()
        os.replace(self._scratch, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        self._is_kept = True
        return self._place

    def drop(self) -> None:
        try:
            self._file.close()
            if not self._is_kept:
                os.unlink(self._scratch, dir_fd=self._folder)
        finally:
            os.close(self._folder)


async def _in_thread(work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(_disk, work)
