"""Health and load of the process."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from server.dependencies import ServicesDependency
from server.gate import SERVER_INFO
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
