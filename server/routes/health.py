"""Health and load of the process."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import time
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import JSONResponse

from server.dependencies import ServicesDependency
from server.http.gate import SERVER_INFO
from server.routes.replies import Alive

_PROC = Path("/proc")


def read_process_facts(data_dir: Path) -> dict[str, Any]:
    """CPU, memory, disk and transfer of this process, zero where the system does not tell. Blocks for some ms."""
    return {
        "cpu_percent": _cpu_percent(),
        "memory": _memory(),
        "disk": _disk(data_dir),
        "io": _transfer(),
    }


def _cpu_percent() -> float:
    """Share of one processor since the process began."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    try:
        started = float((_PROC / "self" / "stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        running = time.clock_gettime(time.CLOCK_BOOTTIME) - started
    except (OSError, IndexError, ValueError):
        return 0.0
    return round(100 * (usage.ru_utime + usage.ru_stime) / max(running, 0.01), 2)


def _memory() -> dict[str, float]:
    try:
        virtual, resident = (
            int(pages) * os.sysconf("SC_PAGE_SIZE") for pages in (_PROC / "self" / "statm").read_text().split()[:2]
        )
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return {"rss": 0, "vms": 0, "percent": 0.0}
    return {"rss": resident, "vms": virtual, "percent": round(100 * resident / total, 2)}


def _disk(data_dir: Path) -> dict[str, float]:
    try:
        usage = shutil.disk_usage(data_dir)
    except OSError:
        return {"total": 0, "used": 0, "free": 0, "percent": 0.0}
    return {**usage._asdict(), "percent": round(100 * usage.used / max(usage.total, 1), 2)}


def _transfer() -> dict[str, int]:
    try:
        lines = dict(line.split(": ") for line in (_PROC / "self" / "io").read_text().splitlines())
        return {name: int(lines[name]) for name in ("read_bytes", "write_bytes")}
    except (OSError, ValueError, KeyError):
        return {"read_bytes": 0, "write_bytes": 0}


class Memory(BaseModel):
    """Bytes of memory, and the share of the machine's."""

    rss: int
    vms: int
    percent: float


class Disk(BaseModel):
    """Bytes of the disk with the data."""

    total: int
    used: int
    free: int
    percent: float


class Transferred(BaseModel):
    """Bytes read and written."""

    read_bytes: int
    write_bytes: int


class Resources(BaseModel):
    """What the process uses."""

    cpu_percent: float
    memory: Memory
    disk: Disk
    io: Transferred


class ServerInfo(BaseModel):
    """For how long the process runs and rests, in seconds, and what it uses."""

    uptime: float
    idle_time: float
    resources: Resources


router = APIRouter()


@router.get("/alive", response_model=Alive)
async def alive() -> dict[str, str]:
    """Whether the process answers."""
    return {"status": "ok"}


@router.get("/health")
async def health() -> str:
    """Whether the server works."""
    return "OK"


@router.get(SERVER_INFO, response_model=ServerInfo)
async def server_info(request: Request, services: ServicesDependency) -> Any:
    """For how long the process runs and rests, and what it uses; strangers are told `{"server": "Drydock"}`."""
    if services.authenticator.identify(request.headers) is None:
        return JSONResponse({"server": "Drydock"})
    facts = await asyncio.to_thread(read_process_facts, services.settings.data_dir)
    return {
        "uptime": services.uptime_seconds(),
        "idle_time": services.manager.idle_seconds(),
        "resources": facts,
    }
