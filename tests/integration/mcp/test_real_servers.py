"""The MCP client with servers that others wrote, in two languages and over all transports."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from agent_core.events.messages import ImageContent
from agent_core.mcp.servers import McpServers
from tests.unit.mcp.conftest import call, running, servers, tool
from tests.unit.mcp.test_addresses import free_port
from tests.waiting import LIMIT_SECONDS, until

TIME = {"command": sys.executable, "args": ["-m", "mcp_server_time", "--local-timezone", "Europe/Berlin"]}
EVERYTHING = (
    Path(__file__).parents[2] / "mcp_servers/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
)
MISSING = f"{EVERYTHING} is missing; scripts/setup --dev installs it"


def everything(transport: str = "stdio") -> dict[str, Any]:
    assert EVERYTHING.exists(), MISSING
    return {"command": "node", "args": [str(EVERYTHING), transport]}


@asynccontextmanager
async def listening(transport: Literal["streamableHttp", "sse"]) -> AsyncIterator[str]:
    """The same server behind an address."""
    assert EVERYTHING.exists(), MISSING
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        "node",
        str(EVERYTHING),
        transport,
        env={"PATH": os.environ["PATH"], "PORT": str(port)},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            while str(port) not in (line := (await process.stderr.readline()).decode()):
                assert line, "the server ended"
        yield f"http://127.0.0.1:{port}/{'mcp' if transport == 'streamableHttp' else 'sse'}"
    finally:
        process.kill()
        await process.wait()
        process._transport.close()  # type: ignore[attr-defined] # its pipe is still open


async def test_the_time_server_tells_the_time_elsewhere_and_refuses_what_is_no_place() -> None:
    async with running(servers(time=TIME)) as found:
        assert not found.problems()
        assert {"get_current_time", "convert_time"} <= {one.name for one in found.tools()}
        converted = await call(
            found, "convert_time", source_timezone="Europe/Berlin", time="12:00", target_timezone="Asia/Tokyo"
        )
        assert not converted.is_error
        assert json.loads(converted.text.partition("\n")[2])["target"]["timezone"] == "Asia/Tokyo"
        assert (await call(found, "get_current_time", timezone="Nowhere/Land")).is_error


async def shows_everything(found: McpServers) -> None:
    """What that server has to offer comes through, whatever the way to it."""
    assert not found.problems()
    assert (await call(found, "echo", message="hello")).text.endswith("Echo: hello")
    assert "5" in (await call(found, "get-sum", a=2, b="3")).text
    picture = await call(found, "get-tiny-image")
    assert any(isinstance(part, ImageContent) for part in picture.content)
    structured = await call(found, "get-structured-content", location="Chicago")
    assert not structured.is_error
    linked = await call(found, "get-resource-links", count=2)
    assert linked.text.count("[Resource") == 2


async def test_the_everything_server_is_used_as_a_program() -> None:
    async with running(servers(everything=everything())) as found:
        await shows_everything(found)
        assert "/" in (await call(found, "get-env")).text


@pytest.mark.parametrize(("transport", "kind"), [("streamableHttp", "http"), ("sse", "sse")])
async def test_the_everything_server_is_used_behind_an_address(
    transport: Literal["streamableHttp", "sse"], kind: str
) -> None:
    async with listening(transport) as url, running(servers(far={"url": url, "transport": kind})) as found:
        await shows_everything(found)
        calling = asyncio.create_task(call(found, "trigger-long-running-operation", duration=60, steps=60))
        await asyncio.sleep(0.1)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert (await call(found, "echo", message="still here")).text.endswith("still here")


async def test_a_real_server_that_was_killed_is_connected_to_again(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    program = everything()
    noted = {"command": "sh", "args": ["-c", f'echo $$ > {pid}; exec "$0" "$@"', program["command"], *program["args"]]}
    async with running(servers(everything=noted)) as found:
        first = int(pid.read_text())
        os.kill(first, 9)
        echo = tool(found, "echo")
        await until(lambda: found._connections[0]._link is None or found._connections[0]._link.client is None)
        said = await echo.acall(echo.action_from_arguments({"message": "again"}))
        assert said.text.endswith("Echo: again")
        assert int(pid.read_text()) != first
