"""What a conversation costs the server's process in memory while it is loaded, and after it was unloaded."""

from __future__ import annotations

import asyncio

from bench.client import following
from bench.figures import Figure
from bench.machine import resident_kb
from bench.processes import Server
from bench.stage import Stage

CONVERSATIONS = 20
WARM_ROUNDS = 3
STEPS = 5
SETTLE_SECONDS = 1.0


async def measure(stage: Stage) -> list[Figure]:
    """Growth of the resident memory; what the process takes once, for all conversations, is left out.

    The first rounds fill caches and the allocator's pools. Then twice as many conversations are loaded as ever before:
    what they take beyond the first half is what each one costs.
    """
    crowd = stage.few(CONVERSATIONS, 2)
    async with stage.playing(STEPS) as server:
        await _work(server, await server.create())
        first = await _resident(server)
        for number in range(stage.few(WARM_ROUNDS, 1)):
            before = await _resident(server)
            await _unload(server, await _load(server, crowd))
            stage.say(f"round {number + 1}: {await _resident(server) - before} KiB more after {crowd} conversations")
        before = await _resident(server)
        await _unload(server, await _load(server, crowd))
        left = await _resident(server) - before
        loaded = await _load(server, crowd)
        half = await _resident(server)
        loaded += await _load(server, crowd)
        with_all = await _resident(server)
        stage.say(f"{crowd} more conversations loaded: {with_all - half} KiB more")
        await _unload(server, loaded)
    return [
        Figure("loaded idle conversation", max(0, with_all - half) / crowd, "KiB", 200),
        Figure("unloaded: what each one more leaves", max(0, left) / crowd, "KiB", 20),
        Figure("RSS after the first LLM call", first / 1024, "MB"),
    ]


async def _resident(server: Server) -> int:
    await asyncio.sleep(SETTLE_SECONDS)
    return resident_kb(server.pid)


async def _load(server: Server, count: int) -> list[str]:
    """So many conversations that have done something and rest now."""
    made = [await server.create() for _ in range(count)]
    for conversation_id in made:
        await _work(server, conversation_id)
    return made


async def _work(server: Server, conversation_id: str) -> None:
    async with following(server.url, conversation_id) as client:
        await client.say("go")
        await client.until_state("finished")


async def _unload(server: Server, made: list[str]) -> None:
    for conversation_id in made:
        await server.post(f"/api/conversations/{conversation_id}/stop")
