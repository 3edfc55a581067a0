"""Files that a program puts into its conversation's workspace, or takes out of it, byte for byte."""

from __future__ import annotations

import asyncio
import os
import tempfile
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

    def download(self, path: str, target: str | Path) -> Path:
        """Save a file of the workspace, or a folder as a ZIP file; returns where it is.

        `target` is the name that it gets, or a folder for it, under its own name. It is there whole or not at all.

        Raises:
            OSError: it cannot be written.
            ToolError, SandboxError: there is no such file in the workspace, or it changed while it was read.
        """
        return self._do(_download(self._work, path, Path(target)))

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


async def _download(work: ConversationLoop, path: str, target: Path) -> Path:
    async with work.sessions.sandbox_access() as sandbox, reading(sandbox, path) as found:
        name = found.name if found.size is not None else f"{found.name or 'workspace'}.zip"
        saving = await _in_thread(lambda: _Saving(target, name))
        size = 0
        try:
            async for part in found.parts():
                size += len(part)
                await _in_thread(partial(saving.write, part))
            if found.size is not None and size != found.size:
                raise SandboxError(f"{path} became shorter while it was read.", code="changed", fix="Try again.")
            return await _in_thread(saving.keep)
        finally:
            saving.drop()


class _Saving:
    """A file of this host that is there under its name once it is whole. Blocking."""

    def __init__(self, target: Path, name: str) -> None:
        self._place = target / name if target.is_dir() else target
        descriptor, self._scratch = tempfile.mkstemp(prefix=f".{self._place.name[:60]}.", dir=self._place.parent)
        self._file = open(descriptor, "wb")  # noqa: SIM115 - closed by `drop`

    def write(self, part: bytes) -> None:
        self._file.write(part)

    def keep(self) -> Path:
        self._file.close()
        os.replace(self._scratch, self._place)
        return self._place

    def drop(self) -> None:
        self._file.close()
        Path(self._scratch).unlink(missing_ok=True)


async def _in_thread(work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(_disk, work)
