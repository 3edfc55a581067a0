"""What is held, by a test's own process, by its servers, and on the machine: after a test no more than before it."""

from __future__ import annotations

import asyncio
import gc
import os
import pwd
import re
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from weakref import WeakSet

from agent_core.mcp.group_guard import GROUP_GUARD
from agent_core.runtime.loop_thread import library_loop
from tests.integration.server.forks import MOULDS
from tests.postgresql import RUNNING


class Patience:
    """Time that what is about to end has for it on a busy machine: a socket that was just closed, a process that was
    just killed, a container that the engine is removing. Once something has not ended in it, what else is left has
    `then` only: the run has failed, and need not take a minute more for each test that fails for the same reason."""

    def __init__(self, seconds: float = 60.0, then: float = 10.0) -> None:
        self._seconds = seconds
        self._then = then

    def is_over(self, began: float) -> bool:
        """Whether it is for what has been waited for since then, by the monotonic clock."""
        if time.monotonic() - began < self._seconds:
            return False
        self._seconds = min(self._seconds, self._then)
        return True


PATIENCE = Patience()
"""What the tests of this process share."""

_PROC = Path("/proc")
CAN_BE_AUDITED = (_PROC / "self/fd").is_dir()
_OURS = ("agent_core", "server", "drydock_client")
_NUMBER = re.compile(r"\[\d+\]")
_GARBAGE_SECONDS = 0.3
_NO_TESTS = ("asyncio_", "litellm-", "http-", "docker-")
"""Threads that end with their loop, those that import the model library once, and those of an engine that tests share:
where one is not closed, its connection is there, too."""
_CACHES = ("node-compile-cache", "v8-compile-cache")
"""What programs that tests start keep among temporary files on purpose, for their next start."""


class OwnHoldings:
    """Descriptors, threads, tasks, processes, mounts and temporary files of this process, as they are when it is made.

    `place` is the test's own folder, `scratch` where this process and its children make their temporary files: whatever
    process has one of them in its command line, its environment or its mounts is the test's.
    """

    def __init__(self, place: Path, scratch: Path, loop: asyncio.AbstractEventLoop | None) -> None:
        self.loop = loop
        self._scratch = scratch
        self._marks = (f"{place}/".encode(), f"{scratch}/".encode(), f"={scratch}\0".encode())
        self.take_as_given()

    def take_as_given(self) -> None:
        """What is there now is not this test's."""
        self._tasks = WeakSet(self._living_tasks())
        self._threads = WeakSet(threading.enumerate())
        self._processes = set(_pids())
        self._descriptors = _own_descriptors()
        self._mounts = self._own_mounts()
        self._files = set(os.listdir(self._scratch))

    def left(self) -> list[str]:
        """What is there now and was not, each in words."""
        files = set(os.listdir(self._scratch)) - self._files
        return [
            *(f"task {task.get_name()}: {task.get_coro()}" for task in self._living_tasks() - set(self._tasks)),
            *(f"thread {name}" for name in sorted(self._new_threads())),
            *(f"temporary file {name}" for name in sorted(files) if not name.startswith(_CACHES)),
            *(f"process {pid}: {what}" for pid, what in self._new_processes()),
            *(f"mount {line.decode()}" for line in self._own_mounts() - self._mounts),
            *(f"descriptor of {name}" for name in (_own_descriptors() - self._descriptors).elements()),
        ]

    def _living_tasks(self) -> set[asyncio.Task[object]]:
        loops = (self.loop, library_loop()._loop)
        return {task for loop in loops if loop is not None for task in asyncio.all_tasks(loop)}

    def _new_threads(self) -> set[str]:
        new = set(threading.enumerate()) - set(self._threads)
        names = {one.name for one in (new and new - set(_pooled()))}
        return {name for name in names if not name.startswith(_NO_TESTS)}

    def _own_mounts(self) -> set[bytes]:
        lines = (_PROC / "self/mountinfo").read_bytes().splitlines()
        return {line for line in lines if any(mark in line for mark in self._marks)}

    def _new_processes(self) -> Iterator[tuple[int, str]]:
        parents = {os.getpid(), *MOULDS}
        mounts = () if self._own_mounts() else ("mountinfo",)  # else they are everybody's
        for pid in set(_pids()) - self._processes - _staying().keys() - RUNNING:
            with suppress(OSError):  # it has just ended
                if (_parent(pid) in parents or self._is_marked(pid, *mounts)) and not self._is_kept(pid):
                    command = (_PROC / str(pid) / "cmdline").read_bytes()
                    yield pid, command.replace(b"\0", b" ").decode("utf-8", "replace")[:300] or "ended, not waited for"

    def _is_marked(self, pid: int, *more: str) -> bool:
        for name in ("cmdline", "environ", *more):
            with suppress(OSError):  # what is another user's tells less
                found = (_PROC / str(pid) / name).read_bytes()
                if any(mark in found for mark in self._marks):
                    return True
        return False

    def _is_kept(self, pid: int) -> bool:
        """Whether it is of a server that other tests use, too: below one that this process had before."""
        above = list(_above(pid))
        nearest = next((one for one in above if one in self._processes), 1)
        return os.getpid() in above and nearest not in (os.getpid(), *MOULDS)


def _above(pid: int) -> Iterator[int]:
    while (pid := _parent(pid)) > 1:
        yield pid


def _parent(pid: int) -> int:
    return int((_PROC / str(pid) / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1])


def _pids() -> list[int]:
    return [int(name) for name in os.listdir(_PROC) if name.isdigit()]


def _staying() -> dict[int, int]:
    """Processes that this one has for good from their first use on, each with the descriptor of the line to it."""
    guard = GROUP_GUARD._program
    return MOULDS if guard is None or guard.stdin is None else {**MOULDS, guard.pid: guard.stdin.fileno()}


def _pooled() -> Iterator[threading.Thread]:
    """The threads of pools that this process has for good, each of a bounded number."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in _OURS:
            for value in vars(module).values():
                if isinstance(value, ThreadPoolExecutor):
                    yield from value._threads


def _own_descriptors() -> Counter[str]:
    """What our descriptors lead to, without the numbers of sockets and pipes, and the lines to who stays."""
    found, but = Counter[str](), set(_staying().values())
    for name in os.listdir(_PROC / "self/fd"):
        with suppress(OSError):
            found[_NUMBER.sub("", os.readlink(_PROC / "self/fd" / name))] += int(name) not in but
    return +found


def prepare_process() -> None:
    """What a process has for good from the first use on, which is no test's, it has now."""
    library_loop().run(asyncio.sleep(0))
    # Some systems answer these over a connection that stays.
    with suppress(OSError):
        socket.getaddrinfo("localhost", 1)
    with suppress(KeyError):
        pwd.getpwuid(os.getuid())


def settled(left: Callable[[], list[str]], loop: asyncio.AbstractEventLoop | None, pause: float = 0.02) -> list[str]:
    """What is left when it had time to end; blocks until nothing is, and lets the loop go on meanwhile."""
    began, is_collected = time.monotonic(), False
    while (found := left()) and not PATIENCE.is_over(began):
        if time.monotonic() - began > _GARBAGE_SECONDS and not is_collected:
            gc.collect()  # when garbage goes is no test's choice
            is_collected = True
        if loop is not None and not loop.is_closed():
            loop.run_until_complete(asyncio.sleep(pause))
        else:
            time.sleep(pause)
    return found


@contextmanager
def noting_instances() -> Iterator[set[str]]:
    """The instances for which this process makes containers meanwhile."""
    from agent_core.runtime.docker import provider
    from agent_core.runtime.sandbox import SandboxSpec

    noted, make = set[str](), provider.DockerProvider._sandbox

    def make_noted(self: provider.DockerProvider, spec: SandboxSpec, name: str, *, known: bool) -> object:
        noted.add(spec.instance_id)
        return make(self, spec, name, known=known)

    provider.DockerProvider._sandbox = make_noted  # type: ignore[method-assign, assignment]
    try:
        yield noted
    finally:
        provider.DockerProvider._sandbox = make  # type: ignore[method-assign]


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
