"""What takes everything it can get in one sandbox takes neither the host, nor the server, nor its other conversations.

The bounds are wide, for machines that do other things: they say "was not taken down". The figures are in the log
(--log-cli-level=INFO), and mean more when each attack lasts longer (HOST_SECONDS=3).
"""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any

import pytest

from tests.integration.server.conftest import MakeProcess, ServerProcess, create, following
from tests.integration.server.test_docker import nothing_stays as nothing_stays

logger = logging.getLogger(__name__)

LIMITS = {
    "DRYDOCK_SANDBOX_MEMORY_MB": "256",
    "DRYDOCK_SANDBOX_PROCESSES": "100",
    "DRYDOCK_SANDBOX_CPUS": "1",
    "DRYDOCK_SANDBOX_DISK_MB": "64",
}
SECONDS = os.environ.get("HOST_SECONDS", "0.3")
HEALTH_SECONDS, STEP_SECONDS = 2.0, 15.0
SERVER_GROWS = 200 * 1024


def python(*lines: str) -> str:
    return f"timeout -s KILL {SECONDS} python3 -c {shlex.quote(chr(10).join(lines))}"


ATTACKS = {
    "memory": python("kept = []", "while True: kept.append(bytearray(10**7))"),
    "shared memory": "head -c 10G /dev/zero > /dev/shm/x; rm -f /dev/shm/x",
    "page cache": "head -c 50M /dev/zero > file; cat file > /dev/null; rm file",
    "descriptors": python("import os", "try:", " while True: os.dup(1)", "finally: os.write(1, b'ended')"),
    "processors": f"for i in $(seq 60); do timeout -s KILL {SECONDS} sh -c 'while :; do :; done' & done; wait",
    "output": f"timeout {SECONDS} yes",
    "one line": rf"timeout {SECONDS} tr '\0' x < /dev/zero",
    "small pieces": python("import os", "while True: os.write(1, b'x\\n')"),
    "tiny files": "mkdir t; " + python("n = 0", "while True: open(f't/{n}', 'w').close(); n += 1") + "; rm -rf t",
    "watches": python(
        "import ctypes, os",
        "c = ctypes.CDLL(None)",
        "while c.inotify_init() >= 0: pass",
        "for n in range(10**6):",
        " os.makedirs(f'w/{n}')",
        " for fd in range(3, 3 + 200): c.inotify_add_watch(fd, f'w/{n}'.encode(), 4095)",
    )
    + "; rm -rf w",
    "pipes": python(
        "import fcntl, os",
        "try:",
        " while True:",
        "  end = os.pipe()[1]; os.set_blocking(end, False)",
        "  try: fcntl.fcntl(end, 1031, 2**20)",  # F_SETPIPE_SZ
        "  except OSError: pass",
        "  try:",
        "   while True: os.write(end, bytes(65536))",
        "  except BlockingIOError: pass",
        "except OSError: pass",
        "while True: pass",
    ),
    "sockets": python(
        "import socket",
        "kept = []",
        "try:",
        " while True:",
        "  kept.append(socket.socketpair()); one = kept[-1][0]; one.setblocking(False)",
        "  try:",
        "   while True: one.send(bytes(65536))",
        "  except BlockingIOError: pass",
        "except OSError: pass",
        "while True: pass",
    ),
    "nameless memory": python(
        "import os",
        "while True:",
        " end = os.memfd_create('x')",
        " for _ in range(100): os.write(end, bytes(10**6))",
    ),
    "disk": "head -c 3G /dev/zero > big; rm -f big",
    "fork bomb": python("import os", "while True:", " try: os.fork()", " except OSError: pass"),
}


class Delays:
    """How long /health and another conversation's step took, in seconds."""

    def __init__(self) -> None:
        self.health: list[float] = []
        self.steps: list[float] = []

    def __str__(self) -> str:
        rows = []
        for name, found in (("health", self.health), ("step", self.steps)):
            cuts = quantiles(found or [0.0], n=100, method="inclusive") if len(found) > 1 else [*found, 0.0] * 99
            rows.append(f"{name} p50 {cuts[49] * 1000:.0f} ms, p99 {cuts[98] * 1000:.0f} ms ({len(found)})")
        return "; ".join(rows)


@asynccontextmanager
async def measured(server: ServerProcess, other: Any) -> AsyncIterator[Delays]:
    """Measure while the body runs: a question each 20 ms, and step after step."""
    delays = Delays()

    async def ask() -> None:
        async with server.client() as client:
            while True:
                began = time.monotonic()
                assert (await client.get("/health")).status_code == 200
                delays.health.append(time.monotonic() - began)
                await asyncio.sleep(0.02)

    async def step() -> None:
        while True:
            count, began = other.count(observation="run"), time.monotonic()
            await other.run("echo a step")
            await other.until(lambda: other.count(observation="run") > count)  # noqa: B023 - awaited at once
            delays.steps.append(time.monotonic() - began)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ask()), group.create_task(step())]
        yield delays
        for task in tasks:
            task.cancel()


def resident(pid: int) -> int:
    """KiB of memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


@pytest.mark.parametrize(
    "kind", [pytest.param("docker", marks=pytest.mark.docker), pytest.param("local", marks=pytest.mark.bubblewrap)]
)
async def test_what_takes_all_it_can_get_takes_down_neither_server_nor_host(
    make_process: MakeProcess, kind: str
) -> None:
    server = await make_process("--sandbox", kind, environment=LIMITS)
    one, two = await create(server), await create(server)
    async with following(server, one) as greedy, following(server, two) as other:
        for follower in (greedy, other):
            await follower.run("cat /proc/self/oom_score_adj")
            await follower.until(lambda follower=follower: follower.count(observation="run") == 1)  # type: ignore[misc]
            (score,) = [frame["content"] for frame in follower.frames if frame.get("observation") == "run"]
            assert int(score.split()[0]) >= 500, score  # before the server's, when the kernel has to end something
        before = resident(server.pid)
        async with measured(server, other) as delays:
            await asyncio.sleep(float(SECONDS))
        logger.info("%s, alone: %s", kind, delays)
        for name, command in ATTACKS.items():
            answers = _answers(greedy)
            async with measured(server, other) as delays:
                await greedy.run(command)
                await greedy.until(lambda: _answers(greedy) > answers)  # noqa: B023 - awaited at once
            logger.info("%s, %s: %s; server %+d KiB", kind, name, delays, resident(server.pid) - before)
            assert max(delays.health) < HEALTH_SECONDS, name
            assert max(delays.steps, default=0) < STEP_SECONDS, name
            assert resident(server.pid) - before < SERVER_GROWS, name
            if name == "fork bomb":  # whatever is left of it goes with its sandbox
                async with server.client() as client:
                    assert (await client.post(f"/api/conversations/{one}/stop")).status_code == 200
        await greedy.run("echo well again")
        await greedy.until(lambda: _said(greedy, "well again"))
        await other.run("echo unmoved")
        await other.until(lambda: _said(other, "unmoved"))


def _answers(follower: Any) -> int:
    """How many commands have ended, well or not."""
    return int(follower.count(observation="run") + follower.count(observation="error"))


def _said(follower: Any, words: str) -> bool:
    return any(words in str(frame.get("content")) for frame in follower.frames if frame.get("observation") == "run")
