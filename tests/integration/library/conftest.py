"""A scripted model in a process's own thread, for programs that are not asynchronous."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pydantic import SecretStr

from agent_core import RemoteWorkspace
from agent_core.llm.llm import LLM
from agent_core.testing.model_server import ModelServer, Script
from agent_core.testing.model_turns import Turn
from tests.integration.server.conftest import ServerProcess

T = TypeVar("T")
StartModel = Callable[[Iterable[Turn] | Script], ModelServer]


class Models:
    """Model servers in a loop of their own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="models")
        self._thread.start()
        self._servers: list[ModelServer] = []

    def start(self, script: Iterable[Turn] | Script) -> ModelServer:
        server = ModelServer(script)
        asyncio.run_coroutine_threadsafe(server.__aenter__(), self._loop).result(60)
        self._servers.append(server)
        return server

    def close(self) -> None:
        for server in self._servers:
            asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()


@pytest.fixture
def start_model() -> Iterator[StartModel]:
    models = Models()
    try:
        yield models.start
    finally:
        models.close()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "boat.py").write_text("class Boat:\n    pass\n")
    (folder / "notes.txt").write_text("a class of its own\n")
    return folder


def model(server: ModelServer) -> LLM:
    return LLM(
        usage_id="agent", model="openai/scripted", base_url=server.url, api_key=SecretStr("key-123456"), num_retries=1
    )


class RunningServer:
    """A server process of its own, for programs that are not asynchronous."""

    def __init__(self, data_dir: Path, *, is_open: bool = False, **environment: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="server")
        self._thread.start()
        self.process = ServerProcess(
            data_dir,
            "--sandbox",
            "local",
            environment={"DRYDOCK_TOKEN": "" if is_open else "auto", "DRYDOCK_MCP_PROGRAMS": "host", **environment},
        )

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(120)

    @property
    def workspace(self) -> RemoteWorkspace:
        return RemoteWorkspace(self.process.url, self.process.token, reconnect_seconds=60)

    def close(self) -> None:
        self.do(self.process.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()


@pytest.fixture(scope="session")
def running_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    server = RunningServer(tmp_path_factory.mktemp("server") / "data")
    try:
        server.do(server.process.start())
        yield server
    finally:
        server.close()
