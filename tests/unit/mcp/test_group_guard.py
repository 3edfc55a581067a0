"""Programs that ignore everything that asks them to end: they do not outlive a process that is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from agent_core.mcp.config import McpServer
from agent_core.mcp.group_guard import GroupGuard
from agent_core.mcp.program import HostPrograms
from agent_core.runtime.processes import ProcessId, identify, wait_gone

ROOT = Path(__file__).parents[3]
LIMIT_SECONDS = 60.0
STUBBORN = """
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
child = os.fork()
away = os.fork() if child else -1
if away == 0:
    os.setsid()
    os.fork()
elif child:
    sys.stderr.write(f"here {os.getpid()} {child} {away}\\n")
    sys.stderr.flush()
time.sleep(1000)
"""
SERVER = f"""
import asyncio, sys
from agent_core.mcp.config import McpServer
from agent_core.mcp.program import HostPrograms

async def run():
    program = await HostPrograms().start(McpServer(command=sys.executable, args=["-c", {STUBBORN!r}]))
    while not (words := await program.last_words()).endswith("\\n"):
        await asyncio.sleep(0.01)
    print(words.split("here ")[1], flush=True)
    await asyncio.sleep(1000)

asyncio.run(run())
"""


def known(pid: int) -> ProcessId:
    found = identify(pid)
    assert found is not None
    return found


async def test_a_stubborn_program_and_its_children_end_with_a_killed_server() -> None:
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SERVER), cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert server.stdout is not None
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            programs = [known(int(word)) for word in (await server.stdout.readline()).split()]
        assert len(programs) == 3
    finally:
        server.kill()
        await server.wait()
    for program in programs:
        assert await wait_gone(program, LIMIT_SECONDS)


async def test_a_stubborn_program_that_is_stopped_takes_with_it_what_has_left_its_session() -> None:
    program = await HostPrograms().start(McpServer(command=sys.executable, args=["-c", STUBBORN]))
    async with asyncio.timeout(LIMIT_SECONDS):
        while not (words := await program.last_words()).endswith("\n"):  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)
    programs = [known(int(word)) for word in words.split("here ")[1].split()]
    async with asyncio.timeout(LIMIT_SECONDS):
        await program.stop()
    assert len(programs) == 3
    for one in programs:
        assert await wait_gone(one, LIMIT_SECONDS)


async def test_what_was_forgotten_is_left_alone_and_a_guard_that_was_killed_is_replaced() -> None:
    guard = GroupGuard()
    sleepers = [await asyncio.create_subprocess_exec("sleep", "1000", start_new_session=True) for _ in range(3)]
    try:
        guard.watch(sleepers[0].pid)
        guard.watch(sleepers[1].pid)
        first = guard._program
        assert first is not None
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        guard.forget(sleepers[1].pid)
        guard.watch(sleepers[2].pid)
        second = guard._program
        assert second is not None
        assert second is not first
        guard.close()  # as the end of this process does
        for sleeper in (sleepers[0], sleepers[2]):
            assert await asyncio.wait_for(sleeper.wait(), LIMIT_SECONDS) == -signal.SIGKILL
        assert sleepers[1].returncode is None
    finally:
        for sleeper in sleepers:
            if sleeper.returncode is None:
                sleeper.kill()
                await sleeper.wait()
