"""The log: a durable append alone and from many writers, and reading it again."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

from agent_core.events.store import NewEvent
from bench.figures import Figure, p50, percentile
from bench.stage import Stage
from server.db.database import Database, open_database

SINGLE_APPENDS = 1500
WRITERS = 64
APPENDS_EACH = 300
PAYLOAD = b'{"kind":"MessageEvent","source":"user","text":"' + b"x" * 500 + b'"}'
LOG_EVENTS = 10_000


async def timed(times: int, action: Callable[[], Awaitable[object]]) -> list[float]:
    """How long each of so many runs takes, in seconds."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        await action()
        found.append(time.perf_counter() - start)
    return found


def sync_disk(folder: Path) -> list[float]:
    """What the disk takes for the writes of one append, without any database: the floor under every figure here."""
    found = []
    with (folder / "sync").open("wb", buffering=0) as file:
        file.write(bytes(4 * 1024 * 1024))
        os.fsync(file.fileno())
        for n in range(300):
            file.seek(n * 8192)
            start = time.perf_counter()
            file.write(bytes(8192))
            os.fdatasync(file.fileno())
            found.append(time.perf_counter() - start)
    return found


def event() -> list[NewEvent]:
    """One event of usual size."""
    return [NewEvent("MessageEvent", "user", None, datetime.now(UTC), PAYLOAD)]


async def single(database: Database, appends: int) -> list[float]:
    """Appends one after the other."""
    epoch = await database.events.claim("single")
    return await timed(appends, lambda: database.events.append("single", event(), epoch=epoch))


async def many(database: Database, each: int) -> float:
    """Events per second of many writers, each with a log of its own, each waiting for every append."""

    async def write(log: str) -> None:
        epoch = await database.events.claim(log)
        for _ in range(each):
            await database.events.append(log, event(), epoch=epoch)

    await asyncio.gather(*(write(f"warm-{n}") for n in range(4)))
    start = time.perf_counter()
    await asyncio.gather(*(write(f"many-{n}") for n in range(WRITERS)))
    return WRITERS * each / (time.perf_counter() - start)


async def read_again(database: Database, events: int) -> float:
    """Seconds to read a log of so many events, page by page."""
    for _ in range(events // 500):
        await database.events.append("long", event() * 500)
    start = time.perf_counter()
    position = -1
    while page := await database.events.read("long", after=position, limit=200):
        position = page[-1].id
    assert position == events - 1
    return time.perf_counter() - start


async def measure(stage: Stage) -> list[Figure]:
    """The database as the server opens it, in this process."""
    data_dir = stage.data_dir()
    async with open_database(data_dir) as database:
        await database.make_room()  # as a server does when it has started
        sync = sync_disk(data_dir)
        alone = [seconds * 1000 for seconds in await single(database, stage.few(SINGLE_APPENDS, 100))]
        rates = [await many(database, stage.few(APPENDS_EACH, 20)) for _ in range(stage.few(3, 1))]
        again = await read_again(database, length := stage.few(LOG_EVENTS, 1000))
    return [
        Figure("durable append, one at a time", p50(alone), "ms", 0.5),
        Figure("  the same, p99", percentile(alone, 99), "ms"),
        Figure("  of it: the disk's own sync", p50(sync) * 1000, "ms"),
        Figure(f"durable append, {WRITERS} writers", p50(rates), "events/s", 20_000, at_least=True),
        Figure(f"{length:,} events read in pages", again, "s"),
    ]
