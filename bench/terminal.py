"""The terminal: round trips over the channel, a flood of output, and the way from an interrupt to the prompt."""

from __future__ import annotations

import asyncio
import gc
import time
from typing import Any

from agent_core.llm.llm import LLM
from agent_core.runtime.channel.connection import SandboxConnection
from agent_core.runtime.docker.images import DEFAULT_IMAGE
from agent_core.runtime.sandbox import SandboxSpec
from agent_core.session.agent_session import AgentSession
from agent_core.session.settings import SessionSettings
from bench.bare_terminal import command as bare_terminal
from bench.figures import Figure, p50, percentile
from bench.machine import begin_peak, peak_kb
from bench.stage import Stage
from bench.steps import InstantModel, until_finished
from server.db.database import open_database

MAKE_FLOOD = f"yes {'x' * 98} | head -c {{}} > /tmp/flood"
FLOOD = "cat /tmp/flood"
LIMIT_SECONDS = 60.0


async def measure(stage: Stage) -> list[Figure]:
    """Round trips and interrupts in one sandbox, then an agent that prints a lot."""
    return [*await _channel(stage), *await _flood(stage)]


async def _channel(stage: Stage) -> list[Figure]:
    async with stage.running_sandbox("terminal") as sandbox:
        await _run(sandbox, "true")
        before = time.process_time()
        trips = [await _round_trip(sandbox, number) for number in range(stage.few(500, 10))]
        used = (time.process_time() - before) * 1000 / len(trips)
        stage.say(f"round trip: {p50(trips):.2f} ms")
        ends = [await _interrupted(sandbox) for _ in range(stage.few(9, 1))]
        stage.say(f"interrupt: {p50(ends):.0f} ms")
        size = _flood_size(stage)
        bare = [float((await _run(sandbox, bare_terminal(size)))["output"]) for _ in range(stage.few(3, 1))]
    budget = 3 if stage.sandbox == "docker" else None
    note = f"p50; p95 {percentile(trips, 95):.1f} ms, {used:.2f} ms of the server's processor time"
    return [
        Figure("command round trip over the channel (`true`)", p50(trips), "ms", budget, note=note),
        Figure("interrupt → prompt", p50(ends), "ms", 100),
        Figure(f"{size // 1_000_000} MB through a terminal of the kernel, without us", p50(bare), "s"),
    ]


async def _round_trip(sandbox: SandboxConnection, number: int) -> float:
    key = f"bench:{number}"
    began = time.perf_counter()
    await _run(sandbox, "true", key=key)
    taken = (time.perf_counter() - began) * 1000
    await sandbox.ack([key])
    return taken


async def _interrupted(sandbox: SandboxConnection) -> float:
    begun = asyncio.Event()
    command = asyncio.create_task(_run(sandbox, "echo begun; sleep 60 & sleep 60", on_output=lambda text: begun.set()))
    async with asyncio.timeout(LIMIT_SECONDS):
        await begun.wait()
        began = time.perf_counter()
        await sandbox.request("shell.interrupt", {"session": "default"})
        await command
        await _run(sandbox, "true")
    return (time.perf_counter() - began) * 1000


async def _run(sandbox: SandboxConnection, command: str, **options: Any) -> dict[str, Any]:
    args = {"session": "default", "command": command, "timeout": LIMIT_SECONDS}
    return (await sandbox.request("shell.run", args, limit_seconds=2 * LIMIT_SECONDS, **options)).result


def _flood_size(stage: Stage) -> int:
    return stage.few(100_000_000, 1_000_000)


async def _flood(stage: Stage) -> list[Figure]:
    """From the stored action to the stored observation, in the server's process with its store."""
    size = _flood_size(stage)
    data_dir = stage.data_dir()
    async with open_database(data_dir) as database, stage.provider(data_dir) as provider:
        try:
            spec = SandboxSpec(
                "flood", database.instance_id, image=DEFAULT_IMAGE, data_dir=str(data_dir), network="none"
            )
            connection = SandboxConnection(provider.create(spec))
            await connection.start()
            await _run(connection, MAKE_FLOOD.format(size))
            session = await AgentSession.open(
                "flood",
                store=database.events,
                settings=SessionSettings(llm=LLM(model="openai/instant").using(InstantModel(3, FLOOD))),
                sandbox=connection,
            )
            gc.collect()
            before, used = begin_peak(), time.process_time()
            try:
                seconds = await until_finished(session)
                grown, used = (peak_kb() - before) / 1024, (time.process_time() - used) / len(seconds)
            finally:
                await session.close(stopped=False, sandbox="destroy")
        finally:
            await stage.remove_sandboxes(data_dir, database.instance_id)
    what = f"{size // 1_000_000} MB of output, delivered, cut and stored"
    return [
        Figure(what, p50(seconds), "s", 2, note=f"{used:.2f} s of the server's processor time"),
        Figure("  memory of the server for it", max(0.0, grown), "MB", 30),
    ]
