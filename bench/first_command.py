"""A new conversation: from the request that creates it to the first command's result."""

from __future__ import annotations

import time

from bench.client import following, is_result
from bench.figures import Figure, p50
from bench.processes import Server
from bench.stage import Stage


async def measure(stage: Stage) -> list[Figure]:
    """The agent's first command, in a sandbox that has to be made; the image is here."""
    async with stage.playing(1) as server:
        cold = await _first_command(server)
        seconds = []
        for number in range(rounds := stage.few(11, 1)):
            seconds.append(await _first_command(server))
            stage.say(f"first command {number + 1} of {rounds}: {seconds[-1]:.2f} s")
    budget = 0.8 if stage.sandbox == "docker" else None
    return [
        Figure("conversation created → first command executed", p50(seconds), "s", budget),
        Figure("  the same, first after the server's start (loads the LLM client)", cold, "s"),
    ]


async def _first_command(server: Server) -> float:
    began = time.perf_counter()
    conversation_id = await server.create(initial_user_msg="go")
    try:
        async with following(server.url, conversation_id) as client:
            await client.until(is_result)
            return time.perf_counter() - began
    finally:
        await server.delete(conversation_id)
