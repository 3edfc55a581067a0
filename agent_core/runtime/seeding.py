"""Files that wait beside a sandbox until it comes up for the first time: a fork's, copied from its source."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

from agent_core.runtime.snapshots import unpack
from agent_core.tools.spec import SandboxAccess

PART = 8 * 1024 * 1024

_reading = ThreadPoolExecutor(1, thread_name_prefix="seeds")


async def plant(seed: Path | None, sandbox: SandboxAccess) -> None:
    """Put the files of the tar file `seed` into the workspace, and remove it; without effect once it is gone.

    Raises:
        SandboxError, ToolError: it cannot be done; the file stays for the next start.
    """
    if seed is None:
        return
    loop = asyncio.get_running_loop()
    file = await loop.run_in_executor(_reading, _opened, seed)
    if file is None:
        return
    try:
        await unpack(sandbox, _parts(file))
    finally:
        await loop.run_in_executor(_reading, file.close)
    await loop.run_in_executor(_reading, _removed, seed)


def _opened(path: Path) -> BinaryIO | None:
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None


def _removed(path: Path) -> None:
    path.unlink(missing_ok=True)


async def _parts(file: BinaryIO) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    while part := await loop.run_in_executor(_reading, file.read, PART):
        yield part
