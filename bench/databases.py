"""Appends to SQLite and to PostgreSQL in turns, both on the same disk: a database's figures are its disk's."""

from __future__ import annotations

from uuid import uuid4

from bench.append import PAYLOAD, WRITERS, event, many, single, timed
from bench.figures import Figure, p50, percentile
from bench.postgresql import postgresql
from bench.stage import Stage
from server.db.database import Database, open_database
from server.db.engine import DatabaseSettings

ROUNDS = 5
APPENDS = 300
EACH = 60
READS = 100


async def measure(stage: Stage) -> list[Figure]:
    """Medians of some rounds with each."""
    found: dict[str, list[tuple[float, float, float, float]]] = {"SQLite": [], "PostgreSQL": []}
    async with postgresql() as server:
        url = server.url(await server.new_database(), tcp=True)
        async with (
            open_database(stage.data_dir()) as sqlite,
            open_database(stage.data_dir(), DatabaseSettings(url=url)) as other,
        ):
            await sqlite.make_room()
            for _ in range(stage.few(ROUNDS, 1)):
                for name, database in (("SQLite", sqlite), ("PostgreSQL", other)):
                    found[name].append(await _round(stage, database))
    figures: list[Figure] = []
    for name, rounds in found.items():
        alone, late, rate, page = (p50(list(values)) for values in zip(*rounds, strict=True))
        figures += [
            Figure(f"{name}: durable append of {len(PAYLOAD)} bytes, one at a time", alone, "ms"),
            Figure("  the same, p99", late, "ms"),
            Figure(f"  with {WRITERS} writers", rate, "events/s"),
            Figure("  a page of 100 events read", page, "ms"),
        ]
    return figures


async def _round(stage: Stage, database: Database) -> tuple[float, float, float, float]:
    alone = [seconds * 1000 for seconds in await single(database, stage.few(APPENDS, 20))]
    rate = await many(database, stage.few(EACH, 5))
    log = uuid4().hex
    await database.events.append(log, event() * 100)
    count = stage.few(READS, 5)
    reads = [seconds * 1000 for seconds in await timed(count, lambda: database.events.read(log, limit=100))]
    return p50(alone), percentile(alone, 99), rate, p50(reads)
