"""What a running server holds: read from its process, its files and its own gauges."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from bench.machine import resident_kb
from bench.processes import Server

_PROC: Final = Path("/proc")
_GAUGE: Final = re.compile(r"^(drydock_\w+) ([0-9.e+-]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Load:
    """One look at a server."""

    memory_mb: float
    descriptors: int
    threads: int
    processes: int
    """Those in its local sandboxes."""
    database_mb: float
    wal_mb: float
    gauges: dict[str, float]

    def __getitem__(self, name: str) -> float:
        """A figure by its name: one of the process, or a gauge."""
        return float(self.gauges[name] if name in self.gauges else getattr(self, name))


async def look(server: Server, client: httpx.AsyncClient) -> Load:
    """What it holds now."""
    answer = await client.get("/metrics")
    answer.raise_for_status()
    process = _PROC / str(server.pid)
    return Load(
        memory_mb=resident_kb(server.pid) / 1024,
        descriptors=sum(1 for _ in (process / "fd").iterdir()),
        threads=sum(1 for _ in (process / "task").iterdir()),
        processes=await asyncio.to_thread(processes_of, server.data_dir),
        database_mb=_megabytes(server.data_dir / "drydock.db"),
        wal_mb=_megabytes(server.data_dir / "drydock.db-wal"),
        gauges={name: float(value) for name, value in _GAUGE.findall(answer.text)},
    )


def processes_of(data_dir: Path) -> int:
    """The processes in local sandboxes below this data folder, found by what is mounted in them. Takes 100 ms."""
    mark = f"{data_dir}/sandboxes/".encode()
    found = 0
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            with suppress(OSError):  # it has just ended
                found += mark in (folder / "mountinfo").read_bytes()
    return found


def _megabytes(file: Path) -> float:
    return file.stat().st_size / 2**20 if file.exists() else 0.0
