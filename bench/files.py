"""Files of a workspace over the public routes: a large one up and down, a folder as an archive, what is changed."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable

import httpx

from bench.client import following
from bench.figures import Figure, p50
from bench.machine import processor_seconds, resident_kb
from bench.stage import Stage

SIZE = 10 * 1024 * 1024
STREAMED = 200 * 1024 * 1024


async def measure(stage: Stage) -> list[Figure]:
    """One conversation's workspace; the client is on the same machine and costs time of its own."""
    async with stage.playing(1) as server:
        conversation_id = await server.create()
        async with following(server.url, conversation_id) as client:
            await client.until_state("awaiting_user_input")
        base = f"/api/conversations/{conversation_id}"
        data = os.urandom(SIZE)
        async with server.client() as http:

            async def up() -> None:
                answer = await http.post(f"{base}/upload-files", files={"files": ("large.bin", data)})
                assert answer.json()["skipped_files"] == [], answer.text

            async def down() -> None:
                answer = await http.get(f"{base}/download", params={"path": "large.bin"})
                assert answer.content == data

            async def packed() -> None:
                (await http.get(f"{base}/zip-directory")).raise_for_status()

            async def changes() -> None:
                await http.get(f"{base}/git/changes")

            rounds = stage.few(7, 1)
            figures = []
            for what, budget, action in (
                ("10 MB file, up", 0.5, up),
                ("10 MB file, down", 0.5, down),
                ("the same workspace as an archive", None, packed),
                ("git changes, without a repository", None, changes),
            ):
                taken, spent = await _timed(action, rounds, server.pid)
                note = f"p50; {spent:.2f} s of the server's processor time"
                figures.append(Figure(what, taken, "s", budget, note=note))
                stage.say(f"{what}: {taken:.2f} s")
            grown = await _grown(http, f"{base}/upload-files", stage.few(STREAMED, SIZE), server.pid)
        figures.append(Figure("the server's memory during the upload of 200 MB", grown, "MB more at most"))
        await server.delete(conversation_id)
    return figures


async def _timed(action: Callable[[], Awaitable[None]], rounds: int, pid: int) -> tuple[float, float]:
    """The median of the seconds that it takes, and of those that the server works."""
    taken, spent = [], []
    for _ in range(rounds):
        began, worked = time.perf_counter(), processor_seconds(pid)
        await action()
        taken.append(time.perf_counter() - began)
        spent.append(processor_seconds(pid) - worked)
    return p50(taken), p50(spent)


async def _grown(http: httpx.AsyncClient, path: str, size: int, pid: int) -> float:
    """By how much the server's memory is larger at most while it takes a file."""
    before = most = resident_kb(pid)
    sending = asyncio.create_task(http.post(path, files={"files": ("streamed.bin", bytes(size))}, timeout=300))
    while not sending.done():
        most = max(most, resident_kb(pid))
        await asyncio.wait([sending], timeout=0.02)
    sending.result().raise_for_status()
    return (most - before) / 1024
