"""Files of a workspace, streamed in and out byte for byte, in bounded memory, and nothing outside of it.

All of it raises `ToolError` (its `code` says what is wrong with a path) and `SandboxError`: ``forbidden``, it leads out
of the workspace or may not be read; ``busy``; ``no_space``; or the sandbox failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

from agent_core.errors import SandboxError, ToolError
from agent_core.tools.context import SandboxAccess

PART = 2 * 1024 * 1024
PART_SECONDS = 60.0
DROP_SECONDS = 10.0
EMPTY_SECONDS = 0.05
STALLED_SECONDS = 300.0

_dropping: set[asyncio.Task[None]] = set()
"""Abandoned transfers that the sandbox is told to end, each within `DROP_SECONDS`."""


@dataclass(frozen=True, slots=True)
class Download:
    """A file as it was when opened, or a folder as a ZIP file of unknown size; `modified` is in nanoseconds."""

    kind: Literal["file", "folder"]
    name: str
    size: int | None
    modified: int
    tag: str
    _sandbox: SandboxAccess
    _id: str

    async def parts(self, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """The bytes from `start` to before `end`, once only; a file that has shrunk meanwhile ends early."""
        if self.size is not None:
            end = self.size if end is None else min(end, self.size)
        clock = asyncio.get_running_loop().time
        last = clock()
        ahead: asyncio.Task[tuple[bytes, bool]] | None = self._ask(start, end) if start != end else None
        try:
            while ahead is not None:
                data, is_last = await ahead
                start += len(data)
                if not data and not is_last:
                    if clock() - last > STALLED_SECONDS:
                        raise SandboxError(f"The archive has not gone on for {STALLED_SECONDS:g} s.", code="stalled")
                    await asyncio.sleep(EMPTY_SECONDS)
                ahead = None if is_last or start == end else self._ask(start, end)
                if data:
                    last = clock()
                    yield data
                    last = clock()
        finally:
            if ahead is not None:
                ahead.cancel()
                await asyncio.wait([ahead])

    def _ask(self, start: int, end: int | None) -> asyncio.Task[tuple[bytes, bool]]:
        return asyncio.create_task(self._part(start, end), name=f"transfer:{self._id}")

    async def _part(self, start: int, end: int | None) -> tuple[bytes, bool]:
        limit = PART if end is None else min(PART, end - start)
        args = {"id": self._id, "offset": start, "limit": limit}
        reply = await self._sandbox.request("transfer.next", args, limit_seconds=PART_SECONDS)
        data = reply.blob or b""
        if len(data) > limit:
            raise SandboxError(f"{len(data)} bytes came where {limit} were asked for.", code="protocol")
        # Of an archive an empty part only says that it takes long.
        return data, bool(reply.result["eof"]) or (not data and self.size is not None)


@asynccontextmanager
async def reading(sandbox: SandboxAccess, path: str) -> AsyncIterator[Download]:
    """Open a file or a folder of the workspace; `path` is relative to it, or absolute and below it."""
    name = _last_name(path, sandbox.working_dir)
    reply = await sandbox.request("transfer.read", {"path": path}, limit_seconds=PART_SECONDS)
    found = reply.result
    try:
        yield Download(found["kind"], name, found["size"], int(found["modified"]), found["tag"], sandbox, found["id"])
    finally:
        _let_go(sandbox, found["id"])


def _last_name(path: str, root: str) -> str:
    """The file's name by the path that was asked for: the sandbox has no say in where it is stored."""
    is_inside = path == root or path.startswith(f"{root.rstrip('/')}/")
    names = [one for one in (path[len(root) :] if is_inside else path).split("/") if one not in ("", ".")]
    return names[-1] if names and names[-1] != ".." and "\0" not in names[-1] else ""


class Upload:
    """One file on its way into the workspace: `write` its bytes, then `keep` it, or `drop` it (also after an error)."""

    def __init__(self, sandbox: SandboxAccess, ident: str) -> None:
        self._sandbox = sandbox
        self._id = ident
        self._waiting = bytearray()
        self._size = 0

    async def write(self, data: bytes) -> None:
        self._waiting += data
        if len(self._waiting) >= PART:
            await self._send()

    async def keep(self) -> int:
        """Make it the file under its name, at once and whole; returns its size."""
        if self._waiting:
            await self._send()
        await self._sandbox.request("transfer.keep", {"id": self._id}, limit_seconds=PART_SECONDS)
        return self._size

    def drop(self) -> None:
        _let_go(self._sandbox, self._id)

    async def _send(self) -> None:
        part = bytes(self._waiting)
        self._waiting.clear()
        args = {"id": self._id, "offset": self._size}
        self._size += len(part)
        await self._sandbox.request("transfer.put", args, blob=part, limit_seconds=PART_SECONDS)


async def writing(sandbox: SandboxAccess, path: str) -> Upload:
    """Begin to store a file of the workspace, in place of one that may be there; missing folders are made."""
    reply = await sandbox.request("transfer.write", {"path": path}, limit_seconds=PART_SECONDS)
    return Upload(sandbox, reply.result["id"])


async def list_folder(
    sandbox: SandboxAccess, path: str = "", *, after: str = "", after_folder: bool = False
) -> dict[str, Any]:
    """The content of a folder of the workspace: ``path``, ``entries`` and how many more were ``left_out``.

    Folders come first, then the names without regard to case. The list goes on behind `after`, the name of an entry
    that was listed before and may be gone; `after_folder` says whether that was a folder. An entry has ``name``,
    ``kind`` (file, folder, other, missing), ``link``, ``size``, ``modified`` (seconds since 1970) and ``hidden``:
    usually not looked at, or named by the workspace's ``.gitignore``.
    """
    arguments = {"path": path, "after": after, "after_folder": after_folder}
    return (await sandbox.request("folder.list", arguments, limit_seconds=PART_SECONDS)).result


def _let_go(sandbox: SandboxAccess, ident: str) -> None:
    task = asyncio.get_running_loop().create_task(_dropped(sandbox, ident), name=f"transfer-drop:{ident}")
    _dropping.add(task)
    task.add_done_callback(_dropping.discard)


async def _dropped(sandbox: SandboxAccess, ident: str) -> None:
    try:
        await sandbox.request("transfer.drop", {"id": ident}, limit_seconds=DROP_SECONDS)
    except (SandboxError, ToolError):
        return  # the runner drops by itself what nobody asks for
