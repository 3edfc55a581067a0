"""``drydock mcp`` as a process, the official client beside it, and a server with a scripted model behind it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from agent_core.testing.fake_sandbox import FakeAnswer, FakeProvider, FakeRequest
from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Turn, say
from server.app import Application, create_app
from server.session.sandboxes import SandboxSelection
from server.settings.settings import Settings
from tests.serving import serving

ROOT = Path(__file__).parents[3]
LIMIT = 90.0
TOKEN = "a token of eight words or so"


@dataclass
class Behind:
    """The server, and the model of its agents."""

    app: Application
    url: str
    model: ModelServer
    answer: Callable[[ModelRequest], Turn]
    release: asyncio.Event
    """Commands that hold wait for it."""

    async def store_settings(self, **settings: Any) -> None:
        """Store them for the user, over REST."""
        async with httpx.AsyncClient(base_url=self.url, headers={"X-Session-API-Key": TOKEN}) as client:
            response = await client.post("/api/settings", json=settings)
            assert response.status_code == 200, response.text

    def script(self, *turns: Turn) -> None:
        """Answer with these, one after the other."""
        left = iter(turns)
        self.answer = lambda request: next(left)


async def nothing(call: FakeRequest) -> FakeAnswer:
    return {}


async def no_files(call: FakeRequest) -> FakeAnswer:
    return {"packed": None, "eof": True, "entries": 0}, b""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Behind]:
    """One server for all tests of a module."""
    made: Behind
    data_dir = tmp_path_factory.mktemp("door")

    async def shell(call: FakeRequest) -> FakeAnswer:
        command = str(call.args.get("command", ""))
        if command.startswith("hold"):
            await made.release.wait()
        facts = {"omitted": 0, "working_dir": "/workspace", "pid": -1, "python": None, "username": "agent"}
        output = f"ran {command}\n" * (2000 if command.startswith("flood") else 1)
        return {"status": "completed", "exit_code": 0, "output": output, "hostname": "fake", "notice": "", **facts}

    def answered(request: ModelRequest) -> Turn:
        return made.answer(request)

    handlers = {"shell.run": shell, "shell.kill": nothing, "workspace.facts": nothing}
    provider = FakeProvider(handlers={**handlers, "workspace.pack": no_files, "workspace.unpack": no_files})

    async def choose() -> SandboxSelection:
        return SandboxSelection(provider, "fake sandboxes for tests")

    async with ModelServer(answered) as model, contextlib.AsyncExitStack() as stack:
        values: dict[str, Any] = {"llm_model": "openai/scripted", "llm_base_url": model.url, "llm_api_key": "sk-x"}
        values |= {"token": TOKEN, "requests_per_second": 0, "generate_titles": False, "data_dir": data_dir}
        app = create_app(Settings.model_validate(values), choose=choose)
        port = await stack.enter_async_context(serving(app, timeout_graceful_shutdown=2))
        made = Behind(app, f"http://127.0.0.1:{port}", model, lambda request: say("Hello."), asyncio.Event())
        try:
            yield made
        finally:
            made.release.set()


@pytest_asyncio.fixture(loop_scope="module")
async def behind(served: Behind) -> AsyncIterator[Behind]:
    """The server; its agents say hello, and commands that hold do so until this test is over."""
    served.answer, served.release = lambda request: say("Hello."), asyncio.Event()
    yield served
    served.release.set()


def program(*options: str, **environment: str) -> StdioServerParameters:
    """``drydock mcp``, with nothing of ours in its environment but this."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("DRYDOCK_", "SESSION_"))}
    return StdioServerParameters(
        command=sys.executable, args=["-m", "server", "mcp", *options], env={**plain, **environment}, cwd=ROOT
    )


@asynccontextmanager
async def connected(*options: str, mode: str = "legacy", **environment: str) -> AsyncIterator[Client]:
    """The official client of a program that it has started."""
    transport = stdio_client(program(*options, **environment))
    async with Client(transport, mode=mode, cache=None) as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def door(served: Behind, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """A connected client, held by a task of its own: the library wants it to be entered and left in one."""
    key_file = tmp_path_factory.mktemp("key") / "key"
    key_file.write_text(f"{TOKEN}\n")
    is_over = asyncio.Event()
    opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()

    async def hold() -> None:
        async with connected("--key-file", str(key_file), DRYDOCK_URL=served.url) as client:
            opened.set_result(client)
            await is_over.wait()

    holding = asyncio.create_task(hold())
    holding.add_done_callback(lambda _: None if opened.done() else opened.set_exception(RuntimeError("no start")))
    try:
        yield await opened
    finally:
        is_over.set()
        await holding


async def data_of(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The data of a tool's result, which has succeeded."""
    async with asyncio.timeout(LIMIT):
        result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    found: dict[str, Any] = result.structured_content
    return found


async def refusal_of(client: Client, tool: str, **arguments: Any) -> str:
    """The text of a tool's result, which has failed."""
    async with asyncio.timeout(LIMIT):
        result = await client.call_tool(tool, arguments)
    assert result.is_error, result.structured_content
    (block,) = result.content
    return str(getattr(block, "text", ""))
