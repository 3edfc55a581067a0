"""Two thousand clients that are there: what each costs, and how late they see what happens."""

from __future__ import annotations

import asyncio
import resource
import time
from contextlib import AsyncExitStack

from bench.client import Client, following
from bench.figures import Figure, p50, percentile
from bench.machine import processor_seconds, resident_kb
from bench.memory_sandboxes import NAME
from bench.stage import Stage

CLIENTS = 2000
CONVERSATIONS = 100
AT_WORK = 20
STEPS = 20
MODEL_SECONDS = 1.0
AT_ONCE = 50
SETTLE_SECONDS = 2.0
SPARE_DESCRIPTORS = 200


async def measure(stage: Stage) -> list[Figure]:
    """They look at a hundred conversations, in twenty of which an agent works; its model takes a second."""
    count, conversations = stage.few(CLIENTS, 10), stage.few(CONVERSATIONS, 4)
    steps, delay = stage.few(STEPS, 3), stage.pause(MODEL_SECONDS)
    _allow_descriptors(count + SPARE_DESCRIPTORS)
    async with (
        stage.model(f"steps:{steps}", delay=delay) as model,
        stage.server(model=model, sandbox_provider_class=NAME, max_sandboxes=str(conversations)) as server,
        AsyncExitStack() as stack,
    ):
        names = [await server.create() for _ in range(conversations)]
        workers = []
        for name in names[: stage.few(AT_WORK, 2)]:
            client = await stack.enter_async_context(following(server.url, name))
            await client.until_state("awaiting_user_input")
            workers.append(client)
        await asyncio.sleep(stage.pause(SETTLE_SECONDS))
        memory, began = resident_kb(server.pid), time.perf_counter()
        turns = asyncio.Semaphore(AT_ONCE)

        async def join(name: str) -> Client:
            async with turns:
                return await stack.enter_async_context(following(server.url, name))

        clients = await asyncio.gather(*(join(names[number % conversations]) for number in range(count)))
        joined = time.perf_counter() - began
        stage.say(f"{count} clients joined within {joined:.1f} s")
        readers = [asyncio.create_task(_read(client)) for client in clients]
        await asyncio.sleep(stage.pause(SETTLE_SECONDS))
        each = (resident_kb(server.pid) - memory) / count
        for client in clients:
            client.arrivals.clear()
        used, began = processor_seconds(server.pid), time.perf_counter()
        for worker in workers:
            await worker.say("go")
        await asyncio.gather(*(worker.until_state("finished") for worker in workers))
        await asyncio.sleep(stage.pause(SETTLE_SECONDS))
        used, taken = processor_seconds(server.pid) - used, time.perf_counter() - began
        for reader in readers:
            reader.cancel()
        await asyncio.wait(readers)
        ages = [arrival.age * 1000 for client in clients for arrival in client.arrivals]
    return [
        Figure(f"{count} clients connected: age of an event at its client, p95", percentile(ages, 95), "ms"),
        Figure(
            "  the same, p50", p50(ages), "ms", note=f"{len(ages):,} events came, {len(ages) / taken:,.0f} a second"
        ),
        Figure("  of a core's time the server's process took", used / taken * 100, "%"),
        Figure("  memory of the server, per client", max(0.0, each), "KiB"),
        Figure("  clients that joined, in a second", count / joined, ""),
    ]


async def _read(client: Client) -> None:
    await client.until(lambda _: False, limit_seconds=600)


def _allow_descriptors(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
