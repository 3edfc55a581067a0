"""The short way to a container's runner: its socket, reached through the root folder of the container's first process.

An exec's stream passes two processes of the engine each way. Where the engine runs on this machine, and this process
may look into the container (it is root's, or of the same user), the runner's socket can be connected to like any other.
Everywhere else the exec is the way.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from agent_core.runtime import processes, runner_socket
from agent_core.runtime.naming import SOCKET
from agent_core.runtime.runner_socket import Opened

LISTENS_SECONDS = 2.0
"""How long the runner of a container that has just been started is waited for; then the exec's words tell more."""

_LOOK_SECONDS = 0.005


async def connect(found: Mapping[str, Any]) -> Opened | None:
    """A stream to the runner of a container as the engine describes it; None when there is no such way.

    The stream's first word has not been waited for.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + LISTENS_SECONDS
    while loop.time() < end:
        first = int(found["State"].get("Pid") or 0)
        with _root(first, str(found["Id"])) as root:
            if root is None:
                return None
            opened = await runner_socket.connect_below(root, SOCKET, _runner(first))
        if opened is not None:
            return opened
        await asyncio.sleep(_LOOK_SECONDS)
    return None


def _runner(first: int) -> int:
    """Id of the runner: the first child of its container's first process, which ends with it; 0 when it is gone."""
    return next(iter(processes.children_of(first)), 0)


@contextmanager
def _root(pid: int, container: str) -> Iterator[int | None]:
    """The root folder of the process `pid` as a descriptor, if it is of this container and may be looked into."""
    try:
        descriptor = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) if pid > 0 else None
    except OSError:
        descriptor = None
    try:
        # A process of the same number may be another one: the engine may run on another machine, or its container may
        # have ended since.
        yield descriptor if descriptor is not None and container and container in _groups(pid) else None
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _groups(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
