"""IPython cells: the start of a kernel, a cell that does next to nothing, and the interrupt of one that goes on."""

from __future__ import annotations

import asyncio
import time

from agent_core.runtime.channel.connection import SandboxConnection
from bench.figures import Figure, p50, percentile
from bench.stage import Stage

ENDLESS = {"a Python loop": "while True: pass", "a program": "!sleep 4321"}
LIMIT_SECONDS = 60.0


async def measure(stage: Stage) -> list[Figure]:
    """Through the channel of one sandbox, as the tool asks for them."""
    async with stage.running_sandbox("kernel") as sandbox:
        return await _figures(stage, sandbox)


async def _figures(stage: Stage, sandbox: SandboxConnection) -> list[Figure]:
    starts = [await _cell(sandbox)]
    for _ in range(stage.few(4, 0)):
        await sandbox.request("kernel.restart", {})
        starts.append(await _cell(sandbox))
    stage.say(f"kernel start: {p50(starts):.2f} s")
    cells = [await _cell(sandbox) for _ in range(stage.few(300, 5))]
    stage.say(f"cell: {p50(cells) * 1000:.1f} ms")
    figures = [
        Figure("IPython kernel start, with its first cell", p50(starts), "s", 2),
        Figure("cell `1+1`", p50(cells) * 1000, "ms", 10),
        Figure("  the same, p95", percentile(cells, 95) * 1000, "ms"),
    ]
    for what, code in ENDLESS.items():
        times = [await _interrupted(sandbox, code, number) for number in range(stage.few(9, 1))]
        figures.append(Figure(f"interrupt of {what} in a cell → prompt", p50(times) * 1000, "ms", 100))
        stage.say(f"interrupt of {what}: {figures[-1].value:.0f} ms")
    return figures


async def _cell(sandbox: SandboxConnection) -> float:
    began = time.perf_counter()
    reply = await sandbox.request("kernel.run", {"code": "1+1"}, limit_seconds=LIMIT_SECONDS)
    assert reply.result["output"] == "2", reply.result
    return time.perf_counter() - began


async def _interrupted(sandbox: SandboxConnection, code: str, number: int) -> float:
    """The seconds from the wish to the kernel's being ready for the next cell."""
    key = f"bench:{hash(code)}-{number}"
    begun = asyncio.Event()
    asked = {"code": f"print('begun', flush=True)\n{code}"}
    cell = asyncio.create_task(
        sandbox.request("kernel.run", asked, key=key, limit_seconds=LIMIT_SECONDS, on_output=lambda _: begun.set()),
        name="bench-cell",
    )
    async with asyncio.timeout(LIMIT_SECONDS):
        await begun.wait()
        began = time.perf_counter()
        await sandbox.request("cancel", {"key": key})
        reply = await cell
    assert reply.result["status"] == "interrupted", reply.result
    return time.perf_counter() - began
