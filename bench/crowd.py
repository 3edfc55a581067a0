"""Twenty conversations at once: steps per second in all, and how late the clients see their events."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

from bench.client import Client, following, is_result
from bench.figures import Figure, p50, percentile
from bench.machine import processor_seconds
from bench.stage import QUICK_STEPS, Stage

CONVERSATIONS = 20
STEPS = 20
ROUNDS = 3


async def measure(stage: Stage) -> list[Figure]:
    """All conversations start a task at the same moment, each watched by a client."""
    crowd, steps = stage.few(CONVERSATIONS, 2), stage.few(STEPS, QUICK_STEPS)
    rates: list[float] = []
    ages: list[float] = []
    used: list[float] = []
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(stage.playing(steps))
        clients: list[Client] = []
        for _ in range(crowd):
            conversation_id = await server.create()
            client = await stack.enter_async_context(following(server.url, conversation_id))
            await client.until_state("awaiting_user_input")
            clients.append(client)
        await _task(clients[0])  # loads the client library
        for number in range(rounds := stage.few(ROUNDS, 1)):
            for client in clients:
                client.arrivals.clear()
            began, before = time.perf_counter(), processor_seconds(server.pid)
            await asyncio.gather(*(_task(client) for client in clients))
            taken = time.perf_counter() - began
            done = [_commands_done(client) for client in clients]
            assert done == [steps] * crowd, f"not every conversation took its {steps} steps: {done}"
            rates.append(sum(done) / taken)
            used.append((processor_seconds(server.pid) - before) / sum(done) * 1000)
            ages += [arrival.age * 1000 for client in clients for arrival in client.arrivals]
            stage.say(f"{crowd} conversations, round {number + 1} of {rounds}: {rates[-1]:.0f} steps/s")
    what = f"{crowd} conversations × {steps} steps"
    return [
        Figure(f"{what} at once", p50(rates), "steps/s", 120, at_least=True),
        Figure("  age of an event at its client, p95", percentile(ages, 95), "ms", 50),
        Figure("  age of an event at its client, p50", p50(ages), "ms"),
        Figure("  processor time of the server, per step", p50(used), "ms"),
    ]


async def _task(client: Client) -> None:
    await client.say("go")
    await client.until_state("finished")


def _commands_done(client: Client) -> int:
    """Commands whose output came: a step that failed in any way is no step."""
    return sum(is_result(arrival.frame) and arrival.frame["content"].startswith("step ") for arrival in client.arrivals)
