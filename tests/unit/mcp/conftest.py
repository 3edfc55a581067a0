"""Servers for the tests of the MCP client."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agent_core.events.schema import Action
from agent_core.mcp import connection, program
from agent_core.mcp.config import McpServer
from agent_core.mcp.servers import McpServers
from agent_core.mcp.tool import McpTool, MCPToolObservation
from tests.waiting import LIMIT_SECONDS

PROGRAM = Path(__file__).with_name("fake_server.py")


def fake(*tools: str, **options: Any) -> dict[str, Any]:
    """The configuration of a fake server; `options` beginning with ``server_`` are the configuration's own."""
    own = {key.removeprefix("server_"): options.pop(key) for key in list(options) if key.startswith("server_")}
    if tools:
        options["tools"] = tools
    return {"command": sys.executable, "args": ["-S", str(PROGRAM), json.dumps(options)], **own}


def servers(**configured: dict[str, Any]) -> McpServers:
    return McpServers({name: McpServer.model_validate(one) for name, one in configured.items()})


@asynccontextmanager
async def running(found: McpServers) -> AsyncIterator[McpServers]:
    """Connected as far as they can be, and closed in the end."""
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            found.start()
            await found.all_settled()
        yield found
    finally:
        async with asyncio.timeout(LIMIT_SECONDS):
            await found.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who does not end, or take a word, is waited for only a moment."""
    monkeypatch.setattr(program, "EXIT_SECONDS", 0.1)
    monkeypatch.setattr(connection, "CANCEL_SECONDS", 0.2)


def tool(found: McpServers, name: str) -> McpTool:
    return next(one for one in found.tools() if one.name == name)


async def call(found: McpServers, name: str, **arguments: Any) -> MCPToolObservation:
    """Call a tool as a model would."""
    definition = tool(found, name)
    action: Action = definition.action_from_arguments(arguments)
    async with asyncio.timeout(LIMIT_SECONDS):
        observation = await definition.acall(action)
    assert isinstance(observation, MCPToolObservation)
    return observation


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
