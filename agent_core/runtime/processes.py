"""Processes that are not our children: known by id and start time, waited for through a descriptor, ended for good."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import NamedTuple


class ProcessId(NamedTuple):
    """A process that can be told from a later one with the same id."""

    pid: int
    start: int

    @property
    def alive(self) -> bool:
        """Whether it still runs (a zombie does not)."""
        return self.start != 0 and _stat(self.pid) == (self.start, False)


def identify(pid: int) -> ProcessId | None:
    """The process that has this id now."""
    found = _stat(pid)
    return None if found is None else ProcessId(pid, found[0])


def children_of(pid: int) -> list[int]:
    """Ids of the children of a process, oldest first."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (OSError, ValueError):
        return []


def members_of_namespace(init: int) -> list[int]:
    """All processes in the process-id namespace whose first process is `init`; none for our own namespace."""
    namespace = _namespace(init)
    if namespace is None or namespace == _namespace(os.getpid()):
        return []
    return [pid for pid in _all_pids() if _namespace(pid) == namespace]


def marked_with(variable: str) -> list[int]:
    """All our processes that were started with the variable ``NAME=value``."""
    mark = variable.encode()
    found = []
    for pid in _all_pids():
        with contextlib.suppress(OSError):
            if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(pid)
    return found


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal; a process that is gone has had it."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


async def wait_gone(process: ProcessId, limit: float) -> bool:
    """Wait until a process has ended; False when it still runs after `limit` seconds."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return True
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    try:
        if not process.alive:
            return True
        loop.add_reader(descriptor, ended.set)
        try:
            async with asyncio.timeout(limit):
                await ended.wait()
        except TimeoutError:
            return not process.alive
        finally:
            loop.remove_reader(descriptor)
    finally:
        os.close(descriptor)
    return True


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _namespace(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return None


def _stat(pid: int) -> tuple[int, bool] | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return int(fields[19]), fields[0] in (b"Z", b"X")
    except (OSError, ValueError, IndexError):
        return None
