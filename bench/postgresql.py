"""A PostgreSQL of a measurement's own, on the disk that the rest is on, and as careful as one in earnest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from bench.machine import processor_seconds
from tests.postgresql import Cluster


@asynccontextmanager
async def postgresql() -> AsyncIterator[Cluster]:
    """It runs until it is left. Raises `RuntimeError` where its programs are missing."""
    cluster = await asyncio.to_thread(Cluster, is_durable=True)
    try:
        await asyncio.to_thread(cluster.start)
        yield cluster
    finally:
        await asyncio.to_thread(cluster.close)


def database_seconds(cluster: Cluster) -> float:
    """Processor time that its processes have used so far; those that have ended meanwhile are left out."""
    found = 0.0
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError, IndexError):
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                if cluster.pid in (parent, int(folder.name)):
                    found += processor_seconds(int(folder.name))
    return found
