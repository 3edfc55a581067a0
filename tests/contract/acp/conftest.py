"""An editor of the Agent Client Protocol's own library, ``drydock acp``, and a real server behind it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from acp import PROTOCOL_VERSION, RequestError, spawn_agent_process, text_block
from acp.client.connection import ClientSideConnection
from acp.schema import (
    AllowedOutcome,
    ClientCapabilities,
    DeniedOutcome,
    FileSystemCapabilities,
    InitializeResponse,
    NewSessionResponse,
    ReadTextFileResponse,
    RequestPermissionResponse,
)

from agent_core.testing.fake_sandbox import FakeAnswer, FakeBehaviour, FakeHandler, FakeProvider, FakeRequest
from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Turn, say
from drydock_client import DrydockClient
from server.app import create_app
from server.doors.acp.agent import serve_editor
from server.doors.acp.json_rpc import StdioTransport
from server.session.sandboxes import SandboxSelection
from server.settings.settings import Settings
from tests.serving import serving

LIMIT = 60.0
TOKEN = "a token of eight words or so"
WORKING = FakeBehaviour()
ROOT = Path(__file__).parents[3]


@dataclass
class FakeEditor:
    """What an editor does: it keeps what it is shown, answers questions and has files."""

    updates: list[tuple[str, Any]] = field(default_factory=list)
    asked: list[Any] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    choose: Callable[[Any], str | None] = lambda call: "allow"
    when_asked: Callable[[], Awaitable[None]] | None = None
    more: asyncio.Event = field(default_factory=asyncio.Event)

    def on_connect(self, conn: Any) -> None:
        """Nothing is asked of an agent on its own account."""

    async def session_update(self, session_id: str, update: Any, **more: Any) -> None:
        self.updates.append((session_id, update))
        self.more.set()

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **more: Any) -> Any:
        self.asked.append((tool_call, options))
        self.more.set()
        if self.when_asked is not None:
            await self.when_asked()
        choice = self.choose(tool_call)
        if choice is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=choice))

    async def read_text_file(self, session_id: str, path: str, **more: Any) -> ReadTextFileResponse:
        if path not in self.files:
            raise RequestError.resource_not_found(path)
        return ReadTextFileResponse(content=self.files[path])

    async def write_text_file(self, session_id: str, path: str, content: str, **more: Any) -> None:
        self.files[path] = content

    def kinds(self) -> list[str]:
        return [update.session_update for _, update in self.updates]

    def of(self, kind: str) -> list[Any]:
        return [update for _, update in self.updates if update.session_update == kind]

    def said(self, kind: str = "agent_message_chunk") -> str:
        return "".join(update.content.text for update in self.of(kind) if update.content.type == "text")

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT):
            while not condition():
                self.more.clear()
                await self.more.wait()


@dataclass
class Desk:
    """An editor with its agent process, the server behind that, and the server's model."""

    url: str
    model: ModelServer
    answer: Callable[[ModelRequest], Turn]
    editor: FakeEditor
    folder: Path
    agent: ClientSideConnection | None = None

    @property
    def conn(self) -> ClientSideConnection:
        assert self.agent is not None
        return self.agent

    async def new(self, **options: Any) -> NewSessionResponse:
        wish = {"cwd": str(self.folder), "mcp_servers": [], **options}
        answer = await self.limited(self.conn.new_session(**wish))
        assert isinstance(answer, NewSessionResponse)
        return answer

    async def prompt(self, session_id: str, text: str) -> str:
        answer = await self.limited(self.conn.prompt(session_id=session_id, prompt=[text_block(text)]))
        return str(answer.stop_reason)

    async def limited(self, work: Awaitable[Any]) -> Any:
        async with asyncio.timeout(LIMIT):
            return await work


async def _shell(call: FakeRequest) -> FakeAnswer:
    command = call.args.get("command", "")
    facts = {"omitted": 0, "working_dir": "/workspace", "pid": -1, "python": None, "username": "agent", "notice": ""}
    status = 1 if command == "false" else 0
    return {"status": "completed", "exit_code": status, "output": f"ran {command}\n", "hostname": "fake", **facts}


async def _nothing(call: FakeRequest) -> FakeAnswer:
    return {}


async def _no_files(call: FakeRequest) -> FakeAnswer:
    return {"packed": None, "eof": True, "entries": 0}, b""


def environment(**values: str) -> dict[str, str]:
    """This process's, without what would configure a server or its clients."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("DRYDOCK_", "LLM_", "SESSION_"))}
    return {**own, **values}


async def introduced(desk: Desk) -> InitializeResponse:
    fs = FileSystemCapabilities(read_text_file=True, write_text_file=True)
    abilities = ClientCapabilities(fs=fs)
    answer = await desk.limited(desk.conn.initialize(protocol_version=PROTOCOL_VERSION, client_capabilities=abilities))
    assert isinstance(answer, InitializeResponse)
    return answer


@contextlib.asynccontextmanager
async def process_at(desk: Desk, **values: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """``drydock acp`` for this editor, as editors start it."""
    arguments = ("-m", "server", "acp", "--url", desk.url)
    env = environment(**values)
    editor: Any = desk.editor
    async with spawn_agent_process(editor, sys.executable, *arguments, env=env, cwd=ROOT) as (agent, process):
        desk.agent = agent
        yield process


@contextlib.asynccontextmanager
async def connection_to(desk: Desk, key: str | None = TOKEN) -> AsyncIterator[None]:
    """The same in this process, over a pair of sockets: it is there at once."""
    here, there = socket.socketpair()
    with here, there:
        agents = StdioTransport(*await asyncio.open_connection(sock=there))
        serving = asyncio.create_task(serve_editor(DrydockClient(desk.url, key), agents))
        reader, writer = await asyncio.open_connection(sock=here)
        editor: Any = desk.editor
        desk.agent = ClientSideConnection(editor, writer, reader)
        try:
            yield
        finally:
            await desk.agent.close()
            writer.close()
            async with asyncio.timeout(LIMIT):
                await serving


@contextlib.asynccontextmanager
async def server_at(settings: Settings, behaviour: FakeBehaviour = WORKING, port: int = 0) -> AsyncIterator[str]:
    """A real server, with sandboxes in memory that behave like that."""
    async with server_with(settings, sandboxes(behaviour), port) as url:
        yield url


def sandboxes(behaviour: FakeBehaviour = WORKING, *, run: FakeHandler = _shell) -> FakeProvider:
    """In memory, in which commands are run so."""
    handlers: dict[str, FakeHandler] = {"shell.run": run, "shell.kill": _nothing, "workspace.facts": _nothing}
    handlers |= {"workspace.pack": _no_files, "workspace.unpack": _no_files}
    return FakeProvider(handlers=handlers, behaviour=behaviour)


@contextlib.asynccontextmanager
async def server_with(settings: Settings, provider: FakeProvider, port: int = 0) -> AsyncIterator[str]:
    """A real server with these sandboxes."""

    async def choose() -> SandboxSelection:
        return SandboxSelection(provider, "fake sandboxes for tests")

    app = create_app(settings, choose=choose)
    async with serving(app, port=port) as found:
        yield f"http://127.0.0.1:{found}"


def settings_for(model: ModelServer, data_dir: Path) -> Settings:
    values = {"llm_model": "openai/scripted", "llm_base_url": model.url, "llm_api_key": "sk-x", "token": TOKEN}
    return Settings.model_validate({"data_dir": data_dir, "generate_titles": False, **values})


@pytest.fixture
async def lone_desk(tmp_path: Path) -> AsyncIterator[Desk]:
    """An editor and a model; no server yet."""
    made: Desk

    def answered(request: ModelRequest) -> Turn:
        return made.answer(request)

    folder = tmp_path / "project"
    folder.mkdir()
    async with ModelServer(answered) as model:
        made = Desk("", model, lambda request: say("Hello."), FakeEditor(), folder)
        yield made


@pytest.fixture
async def bare_desk(lone_desk: Desk, tmp_path: Path) -> AsyncIterator[Desk]:
    """A server, and an editor that has no connection yet."""
    async with server_at(settings_for(lone_desk.model, tmp_path / "data")) as lone_desk.url:
        yield lone_desk


@pytest.fixture
async def desk(bare_desk: Desk) -> AsyncIterator[Desk]:
    """An editor that has introduced itself."""
    async with connection_to(bare_desk):
        await introduced(bare_desk)
        yield bare_desk
