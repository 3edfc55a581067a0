"""The process: from its start to the first answer, and what it takes while it rests."""

from __future__ import annotations

import asyncio

from bench.figures import Figure, p50
from bench.machine import resident_kb
from bench.stage import Stage

SETTLE_SECONDS = 1.0


async def measure(stage: Stage) -> list[Figure]:
    """Starts on a new data folder and on one that is there, and memory at rest."""
    folder = stage.data_dir()
    async with stage.server(data_dir=folder) as server:
        first = server.start_seconds
    seconds, resident = [], []
    for number in range(rounds := stage.few(7, 1)):
        async with stage.server(data_dir=folder) as server:
            seconds.append(server.start_seconds)
            await asyncio.sleep(stage.pause(SETTLE_SECONDS))
            resident.append(resident_kb(server.pid) / 1024)
        stage.say(f"start {number + 1} of {rounds}: {seconds[-1]:.2f} s")
    return [
        Figure("process start → /health answers", p50(seconds), "s", 1.2),
        Figure("the same, first start ever (makes the database)", first, "s"),
        Figure("idle RSS before the first LLM call", p50(resident), "MB", 110),
    ]
