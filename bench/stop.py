"""Stop and pause: from the user's request until no process of the running command is left."""

from __future__ import annotations

import asyncio
import time

from bench.client import Client, following, is_command
from bench.figures import Figure, p50
from bench.machine import is_running, processes_with
from bench.stage import Stage

TREE = "sleep {0} & (sleep {0} & exec sleep {0}) & sleep {0}"
PROCESSES = 4
POLL_SECONDS = 0.001
LIMIT_SECONDS = 30.0


async def measure(stage: Stage) -> list[Figure]:
    """A command with children in the background is stopped, and paused."""
    figures = []
    async with stage.playing(1) as server:
        conversation_id = await server.create()
        async with following(server.url, conversation_id) as client:
            await client.until_state("awaiting_user_input")
            for what, budget in (("stopped", 100), ("paused", 100)):
                rounds = stage.few(7, 1)
                times = [await _ended(client, what, 50_000 + n / 1000) for n in range(rounds)]
                figures.append(Figure(f"{what} → process tree gone", p50(times) * 1000, "ms", budget))
                stage.say(f"{what}: {figures[-1].value:.0f} ms")
    return figures


async def _ended(client: Client, state: str, number: float) -> float:
    """Run the tree, ask for the state; returns the seconds until the tree is gone."""
    mark = f"{number:.3f}"
    await client.send("run", command=TREE.format(mark))
    await client.until(is_command)
    pids: list[int] = []
    async with asyncio.timeout(LIMIT_SECONDS):
        while len(pids := processes_with(mark)) < PROCESSES:  # noqa: ASYNC110 - processes tell nobody that they began
            await asyncio.sleep(0.01)
    began = time.perf_counter()
    await client.send("change_agent_state", agent_state=state)
    async with asyncio.timeout(LIMIT_SECONDS):
        while any(is_running(pid) for pid in pids):  # noqa: ASYNC110 - nor that they ended
            await asyncio.sleep(POLL_SECONDS)
    taken = time.perf_counter() - began
    await client.until_state(state)
    await client.send("change_agent_state", agent_state="awaiting_user_input")
    await client.until_state("awaiting_user_input")
    return taken
