"""Backups of a server that is at work: how long they take, and what whoever appends meanwhile notices of them."""

from __future__ import annotations

import asyncio
import os
import sys
import time

from bench.append import event, timed
from bench.figures import Figure, p50, percentile
from bench.stage import Stage
from server.db.database import Database, open_database
from server.db.repositories.conversations import ConversationRecord

EVENTS, PAYLOADS = 100_000, 1024
PAYLOAD_BYTES = 1024 * 1024 + 1
"""One more than what is kept in the database."""


async def fill(database: Database, events: int, payloads: int) -> None:
    """Logs of 1,000 events each, and large payloads, which nobody can compress."""
    for number in range(events // 1000):
        for _ in range(2):
            await database.events.append(f"log-{number}", event() * 500)
    for number in range(payloads):
        await database.events.append(f"large-{number % 16}", [event()[0]._replace(payload=os.urandom(PAYLOAD_BYTES))])


async def command(*words: str) -> float:
    """Seconds that a command of ours takes, its start among them."""
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "server", *words, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    assert await process.wait() == 0
    return time.perf_counter() - began


async def measure(stage: Stage) -> list[Figure]:
    """One writer appends all the time, once a millisecond at most, in this process, as a server's would."""
    data_dir, events, payloads = stage.data_dir(), stage.few(EVENTS, 2000), stage.few(PAYLOADS, 8)
    file, copy = data_dir.with_name(f"{data_dir.name}-backup"), data_dir.with_name(f"{data_dir.name}-restored")
    async with open_database(data_dir) as database:
        await database.make_room()
        await fill(database, events, payloads)
        for number in range(events // 1000):
            await _known(database, f"log-{number}")
        for number in range(min(16, payloads)):
            await _known(database, f"large-{number}")
        await _known(database, "busy")
        alone = await appending(database, asyncio.create_task(asyncio.sleep(stage.pause(5))))
        backup = asyncio.create_task(command("backup", str(file), "--data-dir", str(data_dir)))
        meanwhile = await appending(database, backup)
    size = file.stat().st_size
    restore = await command("restore", str(file), "--data-dir", str(copy))
    what = f"{events:,} events and {payloads:,} large payloads"
    return [
        Figure(f"backup of {what}", backup.result(), "s"),
        Figure("  its size", size / 1024**2, "MiB"),
        Figure("  its restore", restore, "s"),
        Figure("durable append beforehand, p50", p50(alone) * 1000, "ms"),
        Figure("  p99", percentile(alone, 99) * 1000, "ms"),
        Figure("durable append meanwhile, p50", p50(meanwhile) * 1000, "ms"),
        Figure("  p99", percentile(meanwhile, 99) * 1000, "ms"),
        Figure("  longest", max(meanwhile) * 1000, "ms"),
    ]


async def _known(database: Database, log: str) -> None:
    await database.conversations.create(ConversationRecord(id=log))


async def appending(database: Database, until: asyncio.Task[object]) -> list[float]:
    """How long each append takes until that is done."""
    found: list[float] = []
    while not until.done():
        found += await timed(1, lambda: database.events.append("busy", event()))
        await asyncio.sleep(0.001)
    return found
