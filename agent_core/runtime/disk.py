"""The disk of a sandbox, measured from outside when it can have become too much."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from agent_core.runtime.sandbox import DiskUsage, SandboxLimits
from runtime_images.runner import wire

LOOK_SECONDS = 60.0
_PROGRAM = str(Path(wire.__file__).with_name("core") / "disk_usage.py")
_UNSEEN_SECONDS = 15.0
_QUIET_SECONDS = 120.0
_SHARE = 20

Measure = Callable[[], Awaitable[DiskUsage | None]]


class DiskLook:
    """Keeps a measurement for as long as nothing says that it can be too much by now."""

    def __init__(self, limits: SandboxLimits) -> None:
        self._limits = limits
        self._usage: DiskUsage | None = None
        self._free: tuple[int, int] | None = None
        self._looked = float("-inf")
        self._cost = 0.0

    async def usage(self, measure: Measure, seen_at: str = "") -> DiskUsage | None:
        """What `measure` gives, anew when the free space at `seen_at` (same file system) says that much was written."""
        free = _free(seen_at)
        if not self._is_due(free, time.monotonic() - self._looked):
            return self._usage
        began = time.monotonic()
        self._usage = await measure()
        self._looked, self._free = time.monotonic(), free
        self._cost = self._looked - began
        return self._usage

    def _is_due(self, free: tuple[int, int] | None, age: float) -> bool:
        limits, known = self._limits, self._usage
        is_beyond = known is not None and limits.disk and known.bytes > limits.disk
        if age < (2 if is_beyond else _SHARE) * self._cost:
            return False
        if free is None or self._free is None or known is None:
            return age > _UNSEEN_SECONDS
        if free == self._free:
            return False
        fallen, fewer = self._free[0] - free[0], self._free[1] - free[1]
        is_full = bool(limits.disk) and fallen >= limits.disk - known.bytes
        return is_full or (bool(limits.inodes) and fewer >= limits.inodes - known.entries) or age > _QUIET_SECONDS


async def measured(roots: Sequence[str], processes: Sequence[int], most_entries: int) -> DiskUsage | None:
    """Measure folders of this host, and what these processes hold without a name, in a process of its own."""
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-I", "-S", _PROGRAM, order_for(roots, processes, most_entries)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={},
    )
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            printed, _ = await program.communicate()
    except TimeoutError:
        return None
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()
    return read_usage(printed) if program.returncode == 0 else None


def order_for(roots: Sequence[str], processes: Sequence[int] | None, most_entries: int) -> str:
    """The argument of `runtime_images.runner.core.disk_usage` as a program; None: all processes that it sees."""
    return json.dumps({"roots": list(roots), "processes": processes, "most_entries": most_entries})


def read_usage(printed: bytes) -> DiskUsage | None:
    """The usage that the program has printed."""
    try:
        found = json.loads(printed)
        return DiskUsage(int(found["bytes"]), int(found["entries"]), bool(found["whole"]))
    except (ValueError, KeyError, TypeError):
        return None


def _free(folder: str) -> tuple[int, int] | None:
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return found.f_bfree * found.f_frsize, found.f_ffree
