"""A new conversation: from the request that creates it to the first command's result."""

from __future__ import annotations

import asyncio
import re
import time

from bench.client import following, is_result
from bench.figures import Figure, p50
from bench.processes import Server
from bench.stage import Stage

READY = re.compile(r"^drydock_warm_sandboxes (\S+)$", re.MULTILINE)
WAIT_SECONDS = 60.0


async def measure(stage: Stage) -> list[Figure]:
    """The agent's first command, in a sandbox that has to be made, and in turns in one that is ready."""
    async with stage.model("steps:1") as model, stage.server(model=model) as server:
        first = await _first_command(server)
        async with stage.server(model=model, warm_sandboxes="1") as ready:
            await _first_command(ready)
            cold, warm = [], []
            for number in range(rounds := stage.few(11, 1)):
                cold.append(await _first_command(server))
                await _until_ready(ready)
                warm.append(await _first_command(ready))
                stage.say(f"first command {number + 1} of {rounds}: {cold[-1]:.2f} s, ready {warm[-1]:.3f} s")
    in_docker = stage.sandbox == "docker"
    return [
        Figure("conversation created → first command executed", p50(cold), "s", 0.8 if in_docker else None),
        Figure("  the same, with a sandbox that is ready", 1000 * p50(warm), "ms", 100),
        Figure("  the same, first after the server's start (loads the HTTP client)", first, "s", 1.0),
    ]


async def _until_ready(server: Server) -> None:
    async with asyncio.timeout(WAIT_SECONDS), server.client() as client:
        while float(READY.findall((await client.get("/metrics")).text)[0]) < 1:  # noqa: ASYNC110 - only seen by asking
            await asyncio.sleep(0.05)
    await asyncio.sleep(0.2)  # the engine has done with it


async def _first_command(server: Server) -> float:
    began = time.perf_counter()
    conversation_id = await server.create(initial_user_msg="go")
    try:
        async with following(server.url, conversation_id) as client:
            await client.until(is_result)
            return time.perf_counter() - began
    finally:
        await server.delete(conversation_id)
