"""What is held, by a test's own process, by its servers, and on the machine: after a test no more than before it."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

from agent_core.mcp.group_guard import GROUP_GUARD
from tests.integration.server.forks import MOULDS

AUDITED = "AUDIT" in os.environ
"""Whether each integration test is audited; it costs some ten milliseconds each."""

SETTLE_SECONDS = 10.0
"""What is about to end has so much time for it: a socket that was just closed, a process that was just killed."""

_PROC = Path("/proc")
_NUMBER = re.compile(r"\[\d+\]")
_STAY = ("asyncio_", "litellm-")
"""Threads that end with their loop, and those that import the model library once."""


_OURS = ("agent_core", "server", "drydock_client")


class OwnHoldings:
    """Descriptors, threads, tasks, processes and temporary files of this process, as they are when this is made.

    `place` is the test's own folder: a process anywhere that has it in its command line, its environment or its mounts
    is the test's.
    """

    def __init__(self, place: Path, scratch: Path, loop: asyncio.AbstractEventLoop | None) -> None:
        self.loop = loop
        self._mark = f"{place}/".encode()
        self._scratch = scratch
        self._processes = set(_pids())
        self._descriptors = descriptors(os.getpid())
        self._threads = set(threading.enumerate())
        self._files = set(os.listdir(scratch))

    def left(self) -> list[str]:
        """What is there now and was not, each in words."""
        present = descriptors(os.getpid(), but=_staying().values())
        new = set(threading.enumerate()) - self._threads
        threads = {one.name for one in (new and new - set(_pooled()))}
        return [
            *(f"task {task.get_name()}: {task.get_coro()}" for task in self._tasks()),
            *(f"thread {name}" for name in sorted(threads) if not name.startswith(_STAY)),
            *(f"temporary file {name}" for name in sorted(set(os.listdir(self._scratch)) - self._files)),
            *(f"process {pid}: {what}" for pid, what in self._new_processes()),
            *(f"descriptor of {name}" for name in (present - self._descriptors).elements()),
        ]

    def _tasks(self) -> set[asyncio.Task[object]]:
        return asyncio.all_tasks(self.loop) if self.loop is not None else set()

    def _new_processes(self) -> Iterator[tuple[int, str]]:
        staying = _staying()
        for pid in _pids():
            if pid in self._processes or pid in staying:
                continue
            with suppress(OSError):  # it has just ended
                folder = _PROC / str(pid)
                command = (folder / "cmdline").read_bytes()
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                is_child = parent == os.getpid() or parent in MOULDS
                if is_child or any(self._mark in (folder / name).read_bytes() for name in ("cmdline", "mountinfo")):
                    yield pid, command.replace(b"\0", b" ").decode("utf-8", "replace")[:300] or "ended, not waited for"


def _staying() -> dict[int, int]:
    """Processes that this one has for good, each with the descriptor of the line to it."""
    guard = GROUP_GUARD._program
    return MOULDS if guard is None or guard.stdin is None else {**MOULDS, guard.pid: guard.stdin.fileno()}


def _pooled() -> Iterator[threading.Thread]:
    """The threads of pools that this process has for good, each of a bounded number."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in _OURS:
            for value in vars(module).values():
                if isinstance(value, ThreadPoolExecutor):
                    yield from value._threads


def descriptors(pid: int, *, but: Collection[int] = ()) -> Counter[str]:
    """What a process's descriptors lead to, without the numbers of sockets and pipes; `but`: some are left out."""
    found = Counter[str]()
    for name in os.listdir(_PROC / str(pid) / "fd"):
        with suppress(OSError):
            found[_NUMBER.sub("", os.readlink(_PROC / str(pid) / "fd" / name))] += int(name) not in but
    return +found


def left_in_engine(instance_ids: set[str]) -> list[str]:
    """Containers, networks and volumes of these instances that the engine still has."""
    from docker.errors import DockerException

    from agent_core.runtime.docker.engine import connect
    from agent_core.runtime.sandbox import LABEL_INSTANCE

    found: list[str] = []
    with suppress(OSError, DockerException):
        engine, _ = connect(None, 20)
        with closing(engine):
            for instance_id in instance_ids:
                ours = {"label": f"{LABEL_INSTANCE}={instance_id}"}
                found += [f"container {one['Names'][0]}" for one in engine.containers(all=True, filters=ours)]
                found += [f"network {one['Name']}" for one in engine.networks(filters=ours)]
                found += [f"volume {one['Name']}" for one in engine.volumes(filters=ours)["Volumes"] or ()]
    return found


def settled(holdings: OwnHoldings) -> list[str]:
    """What is left when it had time to end; blocks until nothing is."""
    end = time.monotonic() + SETTLE_SECONDS
    while (found := holdings.left()) and time.monotonic() < end:
        if holdings.loop is not None:
            holdings.loop.run_until_complete(asyncio.sleep(0.02))
        else:
            time.sleep(0.02)
    return found


def _pids() -> list[int]:
    return [int(name) for name in os.listdir(_PROC) if name.isdigit()]
