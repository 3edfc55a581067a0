"""Health and load of the process (wire-protocol 4.6)."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter

from server.dependencies import ServicesDependency
from server.process_facts import read_process_facts
from server.replies.server import Alive, ServerInfo

router = APIRouter()


@router.get("/alive", response_model=Alive)
async def alive() -> dict[str, str]:
    """Whether the process answers."""
    return {"status": "ok"}


@router.get("/health")
async def health() -> str:
    """Whether the server works."""
    return "OK"


@router.get("/server_info", response_model=ServerInfo)
async def server_info(services: ServicesDependency) -> dict[str, Any]:
    """For how long the process runs and rests, and what it uses."""
    facts = await asyncio.to_thread(read_process_facts, services.settings.data_dir)
    return {
        "uptime": services.uptime_seconds(),
        "idle_time": services.manager.idle_seconds(),
        "resources": facts,
    }
