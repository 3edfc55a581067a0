"""``python -m bench.databases postgresql://…``: appends to SQLite and to that empty PostgreSQL, in turns.

A database's figures are its disk's: for a fair comparison both are on the same one.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from bench.append import PAYLOAD, WRITERS, event, many, single, timed
from bench.figures import p50, percentile
from server.db.database import Database, open_database
from server.db.engine import DatabaseSettings

ROUNDS = 5
APPENDS = 300
EACH = 60


async def measure(url: str) -> None:
    """Print what each round finds, and the medians."""
    found: dict[str, list[tuple[float, float, float, float]]] = {"SQLite": [], "PostgreSQL": []}
    with tempfile.TemporaryDirectory(prefix="drydock-bench-") as folder:
        async with (
            open_database(Path(folder, "sqlite")) as sqlite,
            open_database(Path(folder, "postgresql"), DatabaseSettings(url=url)) as postgresql,
        ):
            await sqlite.make_room()
            for number in range(ROUNDS):
                for name, database in (("SQLite", sqlite), ("PostgreSQL", postgresql)):
                    found[name].append(await _round(database))
                    print(f"{number + 1}: {name:10}", *(f"{value:10.2f}" for value in found[name][-1]), flush=True)
    print(f"\nof {len(PAYLOAD)} bytes:   append p50, p99 in ms; events/s of {WRITERS} writers; a page of 100 read, ms")
    for name, rounds in found.items():
        print(f"   {name:10}", *(f"{p50(list(values)):10.2f}" for values in zip(*rounds, strict=True)))


async def _round(database: Database) -> tuple[float, float, float, float]:
    alone = [seconds * 1000 for seconds in await single(database, APPENDS)]
    rate = await many(database, EACH)
    await database.events.append("page", event() * 100)
    reads = [seconds * 1000 for seconds in await timed(100, lambda: database.events.read("page", limit=100))]
    return p50(alone), percentile(alone, 99), rate, p50(reads)


if __name__ == "__main__":
    asyncio.run(measure(sys.argv[1]))
