"""Health and load of the process."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from fastapi import Request
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.responses import JSONResponse, PlainTextResponse, Response

from server.auth.identity import IDENTITY
from server.dependencies import ServicesDependency
from server.http.gate import METRICS, SERVER_INFO
from server.routes.replies import Alive
from server.routes.route_classes import make_router

router = make_router(route_class=APIRoute)
_PROC = Path("/proc/self")


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


@router.get("/alive", response_model=Alive)
async def alive() -> dict[str, str]:
    """Whether the process answers."""
    return {"status": "ok"}


@router.get("/health")
async def health() -> str:
    """Whether the server works."""
    return "OK"


class Readiness(BaseModel):
    """Whether the server takes new work, or since when (UTC) and why it does not."""

    status: Literal["ok", "refusing"]
    reason: str | None
    since: datetime | None


@router.get("/ready", response_model=Readiness, responses={503: {"model": Readiness}})
async def ready(services: ServicesDependency) -> Any:
    """Whether the server takes new work; 503 while it can store nothing, which passes by itself."""
    health = services.database.writer.health
    if not health.problem:
        return {"status": "ok", "reason": None, "since": None}
    readiness = Readiness(status="refusing", reason=health.sentence, since=health.since)
    return JSONResponse(readiness.model_dump(mode="json"), 503, {"Retry-After": "5"})


@router.get(SERVER_INFO, response_model=ServerInfo)
async def server_info(request: Request, services: ServicesDependency) -> Any:
    """For how long the process runs and rests, and what it uses; strangers are told `{"server": "Drydock"}`."""
    if IDENTITY not in request.scope:
        return JSONResponse({"server": "Drydock"})
    facts = await asyncio.to_thread(read_process_facts, services.settings.data_dir)
    return {"uptime": services.uptime_seconds(), "idle_time": services.manager.idle_seconds(), "resources": facts}


@router.get(METRICS, response_class=PlainTextResponse, include_in_schema=False)
async def metrics(services: ServicesDependency) -> Response:
    """What the server counts, in Prometheus' text format."""
    return Response(services.metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")


def read_process_facts(data_dir: Path) -> dict[str, Any]:
    """CPU, memory, disk and transfer of this process, zero where the system does not tell. Blocks for some ms."""
    facts: dict[str, Any] = {
        "cpu_percent": 0.0,
        "memory": {"rss": 0, "vms": 0, "percent": 0.0},
        "disk": {"total": 0, "used": 0, "free": 0, "percent": 0.0},
        "io": {"read_bytes": 0, "write_bytes": 0},
    }
    with suppress(OSError, IndexError, ValueError):  # the share of one processor since the process began
        usage = resource.getrusage(resource.RUSAGE_SELF)
        started = float((_PROC / "stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        running = time.clock_gettime(time.CLOCK_BOOTTIME) - started
        facts["cpu_percent"] = round(100 * (usage.ru_utime + usage.ru_stime) / max(running, 0.01), 2)
    with suppress(OSError, ValueError):
        size = os.sysconf("SC_PAGE_SIZE")
        virtual, resident = (int(pages) * size for pages in (_PROC / "statm").read_text().split()[:2])
        total = os.sysconf("SC_PHYS_PAGES") * size
        facts["memory"] = {"rss": resident, "vms": virtual, "percent": round(100 * resident / total, 2)}
    with suppress(OSError):
        disk = shutil.disk_usage(data_dir)
        facts["disk"] = {**disk._asdict(), "percent": round(100 * disk.used / max(disk.total, 1), 2)}
    with suppress(OSError, ValueError, KeyError):
        lines = dict(line.split(": ") for line in (_PROC / "io").read_text().splitlines())
        facts["io"] = {name: int(lines[name]) for name in ("read_bytes", "write_bytes")}
    return facts
