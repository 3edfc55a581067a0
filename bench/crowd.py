"""Twenty conversations at once: steps per second in all, and how late the clients see their events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from bench.client import Client, following, is_result
from bench.figures import Figure, p50, percentile
from bench.machine import busy_seconds, processor_seconds
from bench.processes import Server
from bench.stage import QUICK_STEPS, Stage

CONVERSATIONS = 20
STEPS = 20
ROUNDS = 3


@dataclass(slots=True)
class CrowdResult:
    """What was found in each round: steps per second, ages of events in ms; ms of processor time for a step.

    `servers` is that of the server processes, `database` that of what was to be looked at beside, `everything` that of
    the whole machine: models, clients and sandboxes too.
    """

    rates: list[float] = field(default_factory=list)
    ages: list[float] = field(default_factory=list)
    servers: list[float] = field(default_factory=list)
    database: list[float] = field(default_factory=list)
    everything: list[float] = field(default_factory=list)


async def measure(stage: Stage) -> list[Figure]:
    """All conversations start a task at the same moment, each watched by a client."""
    crowd, steps = stage.few(CONVERSATIONS, 2), stage.few(STEPS, QUICK_STEPS)
    async with stage.playing(steps) as server:
        found = await at_once(stage, [server], crowd, steps)
    return [
        Figure(f"{crowd} conversations × {steps} steps at once", p50(found.rates), "steps/s", 120, at_least=True),
        Figure("  age of an event at its client, p95", percentile(found.ages, 95), "ms", 50),
        Figure("  age of an event at its client, p50", p50(found.ages), "ms"),
        Figure("  processor time of the server, per step", p50(found.servers), "ms"),
    ]


async def at_once(
    stage: Stage, servers: Sequence[Server], crowd: int, steps: int, database_seconds: Callable[[], float] | None = None
) -> CrowdResult:
    """Some rounds with so many conversations, spread over these servers; the model makes that many `steps`."""
    found = CrowdResult()
    beside = database_seconds or (lambda: 0.0)

    def used() -> tuple[float, float, float]:
        return sum(processor_seconds(server.pid) for server in servers), beside(), busy_seconds()

    async with AsyncExitStack() as stack:
        clients: list[Client] = []
        for number in range(crowd):
            server = servers[number % len(servers)]
            conversation_id = await server.create()
            client = await stack.enter_async_context(following(server.url, conversation_id))
            await client.until_state("awaiting_user_input")
            clients.append(client)
        for client in clients[: len(servers)]:
            await _task(client)  # loads the client library
        for number in range(rounds := stage.few(ROUNDS, 1)):
            for client in clients:
                client.arrivals.clear()
            began, before = time.perf_counter(), used()
            await asyncio.gather(*(_task(client) for client in clients))
            taken = time.perf_counter() - began
            done = [_commands_done(client) for client in clients]
            assert done == [steps] * crowd, f"not every conversation took its {steps} steps: {done}"
            found.rates.append(sum(done) / taken)
            each = [(after - first) / sum(done) * 1000 for first, after in zip(before, used(), strict=True)]
            for values, value in zip((found.servers, found.database, found.everything), each, strict=True):
                values.append(value)
            found.ages += [arrival.age * 1000 for client in clients for arrival in client.arrivals]
            stage.say(f"{crowd} conversations, round {number + 1} of {rounds}: {found.rates[-1]:.0f} steps/s")
    return found


async def _task(client: Client) -> None:
    await client.say("go")
    await client.until_state("finished")


def _commands_done(client: Client) -> int:
    """Commands whose output came: a step that failed in any way is no step."""
    return sum(is_result(arrival.frame) and arrival.frame["content"].startswith("step ") for arrival in client.arrivals)
