"""What a running server holds: read from its process, its files and its own gauges."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

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
    opened: dict[str, int]
    """What the descriptors are: files by their names, sockets by whom they lead to."""

    @property
    def kept_connections(self) -> int:
        """Connections to a model server: as many as there were calls at once, each reused before a new one is made."""
        return self.opened.get("connection", 0)

    @property
    def other_descriptors(self) -> int:
        return self.descriptors - self.kept_connections

    def __getitem__(self, name: str) -> float:
        """A figure by its name: one of the process, or a gauge."""
        return float(self.gauges[name] if name in self.gauges else getattr(self, name))


async def look(server: Server, client: httpx.AsyncClient) -> Load:
    """What it holds now."""
    answer = await client.get("/metrics")
    answer.raise_for_status()
    process = _PROC / str(server.pid)
    opened = await asyncio.to_thread(opened_by, server.pid, server.url)
    return Load(
        memory_mb=resident_kb(server.pid) / 1024,
        descriptors=opened.total(),
        threads=sum(1 for _ in (process / "task").iterdir()),
        processes=await asyncio.to_thread(processes_of, server.data_dir),
        database_mb=_megabytes(server.data_dir / "drydock.db"),
        wal_mb=_megabytes(server.data_dir / "drydock.db-wal"),
        gauges={name: float(value) for name, value in _GAUGE.findall(answer.text)},
        opened=dict(opened),
    )


def opened_by(pid: int, url: str) -> Counter[str]:
    """A server's open descriptors by what they are: its clients' connections, those to others, files, and so on."""
    process, listening = _PROC / str(pid), urlsplit(url).port
    lines = [line.split() for line in (process / "net/tcp").read_text().splitlines()[1:]]
    ours = {line[9]: int(line[1].rpartition(":")[2], 16) == listening for line in lines}
    found = Counter[str]()
    for descriptor in (process / "fd").iterdir():
        with suppress(OSError):  # it was closed meanwhile
            kind, _, number = str(descriptor.readlink()).strip("]").partition(":[")
            if kind == "socket":
                kind = {None: "local socket", True: "client", False: "connection"}[ours.get(number)]
            found[Path(kind).name or kind] += 1
    return found


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
