"""The log's budgets: a durable append alone and from many writers, reading it again, and listing conversations."""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from agent_core.events.store import NewEvent
from server.db.database import Database, open_database
from server.db.tables import conversations

SINGLE_APPENDS = 1500
WRITERS = 64
APPENDS_EACH = 300
PAYLOAD = b'{"kind":"MessageEvent","source":"user","text":"' + b"x" * 500 + b'"}'
CONVERSATIONS = 100_000
LOG_EVENTS = 10_000


def milliseconds(times: list[float]) -> float:
    """The median of times in seconds, in milliseconds."""
    return statistics.median(times) * 1000


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


async def single(database: Database) -> list[float]:
    """Appends one after the other."""
    epoch = await database.events.claim("single")
    return await timed(SINGLE_APPENDS, lambda: database.events.append("single", event(), epoch=epoch))


async def many(database: Database) -> float:
    """Events per second of many writers, each with a log of its own, each waiting for every append."""

    async def write(log: str) -> None:
        epoch = await database.events.claim(log)
        for _ in range(APPENDS_EACH):
            await database.events.append(log, event(), epoch=epoch)

    await asyncio.gather(*(write(f"warm-{n}") for n in range(4)))
    start = time.perf_counter()
    await asyncio.gather(*(write(f"many-{n}") for n in range(WRITERS)))
    return WRITERS * APPENDS_EACH / (time.perf_counter() - start)


async def read_again(database: Database) -> float:
    """Seconds to read a long log, page by page."""
    for _ in range(LOG_EVENTS // 500):
        await database.events.append("long", event() * 500)
    start = time.perf_counter()
    position = -1
    while page := await database.events.read("long", after=position, limit=200):
        position = page[-1].id
    assert position == LOG_EVENTS - 1
    return time.perf_counter() - start


async def fill_list(database: Database) -> None:
    """So many conversations, each a second younger than the one before."""
    start = datetime(2025, 1, 1, tzinfo=UTC)
    rows = [
        {
            "id": f"{n:032x}",
            "user_id": "",
            "title": f"Conversation {n}",
            "created_at": start + timedelta(seconds=n),
            "selected_repository": f"owner/name-{n % 1000}",
            "trigger": "gui",
            "accumulated_cost": 0.0,
            "prompt_tokens": 0,
            "completion_tokens": 0,
            "pr_number": [],
            "options": {},
        }
        for n in range(CONVERSATIONS)
    ]

    async def apply(connection: AsyncConnection) -> None:
        await connection.execute(insert(conversations), rows)

    await database.writer.change(apply)


async def listing(database: Database) -> dict[str, float]:
    """Times of the list's pages: the first one, one deep inside, one with a filter."""
    await fill_list(database)
    page_id = None
    for _ in range(50):
        page_id = (await database.conversations.list_page(limit=20, page_id=page_id)).next_page_id
    first = await timed(100, lambda: database.conversations.list_page(limit=20))
    deep = await timed(100, lambda: database.conversations.list_page(limit=20, page_id=page_id))
    filtered = await timed(
        100, lambda: database.conversations.list_page(limit=20, selected_repository="owner/name-7", trigger="gui")
    )
    return {
        "list_first_page_p50_ms": milliseconds(first),
        "list_deep_page_p50_ms": milliseconds(deep),
        "list_filtered_page_p50_ms": milliseconds(filtered),
    }


async def measure() -> dict[str, float]:
    """All figures of this module, by name; the unit ends the name."""
    with tempfile.TemporaryDirectory(prefix="drydock-bench-") as folder:
        sync = sync_disk(Path(folder))
        async with open_database(Path(folder) / "data") as database:
            alone = await single(database)
            return {
                "disk_sync_p50_ms": milliseconds(sync),
                "append_p50_ms": milliseconds(alone),
                "append_p99_ms": statistics.quantiles(alone, n=100)[98] * 1000,
                "append_64_writers_per_s": await many(database),
                "read_10000_events_s": await read_again(database),
                **await listing(database),
            }
