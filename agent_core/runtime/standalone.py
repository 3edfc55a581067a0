"""A sandbox on a folder of this host, without a server: for library conversations and for single tools."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from agent_core.errors import SandboxError
from agent_core.runtime.action_runner import DirectContext
from agent_core.runtime.channel.connection import SandboxConnection
from agent_core.runtime.local.folder import remove_tree
from agent_core.runtime.local.provider import LocalProvider
from agent_core.runtime.loop_thread import library_loop
from agent_core.runtime.sandbox import NetworkWish, SandboxSpec
from agent_core.tools.context import ToolContext

T = TypeVar("T")

_SYSTEM_FOLDERS = ("/", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/proc", "/dev", "/sys", "/run")


def folder_spec(
    folder: str | Path,
    *,
    conversation_id: str,
    instance_id: str,
    data_dir: str,
    ends_with_owner: bool,
    network: NetworkWish = "full",
) -> SandboxSpec:
    """The spec of a sandbox in that folder, made if need be; `ValueError` for a file, or a folder of the system."""
    path = Path(folder).expanduser().absolute()
    if path.exists() and not path.is_dir():
        raise ValueError(f"workspace {str(path)!r} is not a folder")
    path.mkdir(parents=True, exist_ok=True)
    path = path.resolve()
    if str(path) in _SYSTEM_FOLDERS:
        raise ValueError(f"workspace {str(path)!r} is a folder of the system; choose one with a project in it")
    return SandboxSpec(
        conversation_id=conversation_id,
        instance_id=instance_id,
        image="",
        data_dir=data_dir,
        workspace=str(path),
        network=network,
        ends_with_owner=ends_with_owner,
    )


def require_isolation() -> None:
    """Raise `SandboxError` (``no_isolation``) early and clearly where commands cannot be confined to a folder."""
    if shutil.which("bwrap") is None:
        raise SandboxError(
            "A folder as workspace needs bubblewrap (bwrap), which is not installed.",
            code="no_isolation",
            fix="Install it (sudo apt-get install bubblewrap, or your system's equivalent), or give a DockerWorkspace.",
        )


class FolderSandbox:
    """A sandbox for single calls of tools (`agent_core.tools.execution.OwnSandbox`)."""

    def __init__(self, folder: str) -> None:
        self._folder = folder or os.getcwd()
        self._opening: asyncio.Task[SandboxConnection] | None = None
        self._data_dir = ""

    def submit(self, work: Callable[[ToolContext], Coroutine[Any, Any, T]]) -> Future[T]:
        return library_loop().submit(self._do(work))

    def close(self) -> None:
        library_loop().run(self._close())

    async def _do(self, work: Callable[[ToolContext], Coroutine[Any, Any, T]]) -> T:
        if self._opening is None or (self._opening.done() and self._opening.exception() is not None):
            self._opening = asyncio.create_task(self._open(), name="own-sandbox")
        connection = await asyncio.shield(self._opening)
        return await work(DirectContext(connection))

    async def _open(self) -> SandboxConnection:
        require_isolation()
        self._data_dir = self._data_dir or tempfile.mkdtemp(prefix="drydock-")
        spec = folder_spec(
            self._folder,
            conversation_id="alone",
            instance_id=secrets.token_hex(8),
            data_dir=self._data_dir,
            ends_with_owner=True,
        )
        connection = SandboxConnection(LocalProvider(self._data_dir).create(spec))
        library_loop().close_at_exit(self._close)
        await connection.start()
        return connection

    async def _close(self) -> None:
        library_loop().forget(self._close)
        opening, self._opening = self._opening, None
        if opening is not None:
            with contextlib.suppress(SandboxError):
                await (await opening).destroy()
        if self._data_dir:
            remove_tree(Path(self._data_dir))
            self._data_dir = ""
