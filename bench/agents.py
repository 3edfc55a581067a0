"""A thousand agents at once whose model takes five seconds for an answer: what limits, and what a step itself takes."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterable
from itertools import pairwise
from pathlib import Path

import httpx

from agent_core.events.llm_events import ActionEvent
from agent_core.events.serialization import from_payload
from bench.figures import Figure, p50, percentile
from bench.machine import busy_seconds, processor_seconds, resident_kb
from bench.memory_sandboxes import NAME
from bench.stage import Stage
from server.db.database import open_database

AGENTS = 1000
STEPS = 8
MODEL_SECONDS = 5.0
AT_ONCE = 20
LIMIT_SECONDS = 600.0
MADE = re.compile(r"^drydock_step_duration_seconds_count\S* (\S+)$", re.MULTILINE)


async def measure(stage: Stage) -> list[Figure]:
    """Their sandboxes are in the server's memory: a thousand real ones are another machine's matter."""
    agents, steps, delay = stage.few(AGENTS, 4), stage.few(STEPS, 3), stage.pause(MODEL_SECONDS)
    data_dir = stage.data_dir()
    async with (
        stage.model(f"steps:{steps}", delay=delay) as model,
        stage.server(
            model=model,
            data_dir=data_dir,
            sandbox_provider_class=NAME,
            max_working_conversations=str(agents),
            max_sandboxes=str(agents),
        ) as server,
        server.client() as client,
    ):
        before = resident_kb(server.pid)
        began, used, busy = time.perf_counter(), processor_seconds(server.pid), busy_seconds()
        names = await _begin(client, agents)
        created = time.perf_counter() - began
        stage.say(f"{agents} agents began within {created:.1f} s")
        await _until_made(client, agents * (steps + 1))
        taken = time.perf_counter() - began
        used, busy = processor_seconds(server.pid) - used, busy_seconds() - busy
        memory = resident_kb(server.pid) - before
    gaps = [gap async for gap in _gaps(data_dir, names)]
    assert len(gaps) >= agents * (steps - 1), f"only {len(gaps)} steps were made"
    own = [(gap - delay) * 1000 for gap in gaps]
    total = agents * (steps + 1)
    return [
        Figure(f"{agents} agents, a model that takes {delay:g} s: a step's own time, p95", percentile(own, 95), "ms"),
        Figure("  the same, p50", p50(own), "ms"),
        Figure(
            "  steps per second while all work", agents / p50(gaps), "steps/s", note=f"{agents / delay:.0f} at most"
        ),
        Figure("  of a core's time the server's process took", used / taken * 100, "%"),
        Figure("  processor time of the server, per step", used / total * 1000, "ms"),
        Figure("  processor time of everything, per step", busy / total * 1000, "ms"),
        Figure("  memory of the server, per agent", memory / agents, "KiB"),
        Figure("  conversations created, in a second", agents / created, ""),
    ]


async def _begin(client: httpx.AsyncClient, count: int) -> list[str]:
    turns = asyncio.Semaphore(AT_ONCE)

    async def create() -> str:
        async with turns:
            answer = await client.post("/api/conversations", json={"initial_user_msg": "go"})
            answer.raise_for_status()
            return str(answer.json()["conversation_id"])

    return list(await asyncio.gather(*(create() for _ in range(count))))


async def _until_made(client: httpx.AsyncClient, steps: int) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        while sum(map(float, MADE.findall((await client.get("/metrics")).text))) < steps:  # noqa: ASYNC110 - seen by asking
            await asyncio.sleep(0.5)


async def _gaps(data_dir: Path, names: Iterable[str]) -> AsyncIterator[float]:
    """Seconds from each command to the next, by the logs."""
    async with open_database(data_dir) as database:
        for name in names:
            stored = await database.events.read(name, limit=1000)
            events = (from_payload(one.payload, one.id, name) for one in stored)
            times = [event.timestamp.timestamp() for event in events if isinstance(event, ActionEvent)]
            for before, after in pairwise(times):
                yield after - before
