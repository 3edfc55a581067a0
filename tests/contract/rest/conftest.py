"""The real application in this process: real database and routes, sandboxes in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent_core.runtime.sandbox import SandboxProvider
from agent_core.testing.fake_sandbox import FakeAnswer, FakeProvider, FakeRequest, command_result
from server.app import Application, create_app
from server.session.sandboxes import SandboxSelection
from server.settings.settings import Settings

WAIT_SECONDS = 60.0
MODEL_SECONDS = 90.0
FACTS: dict[str, Any] = {
    "working_dir": "/workspace",
    "user": "agent",
    "hostname": "fake",
    "os": "Linux",
    "python": "3",
    "git": None,
    "instructions": [],
}
"""What a sandbox in memory says of itself."""


class Server:
    """A running application and a client of it."""

    def __init__(self, app: Application, client: httpx.AsyncClient, provider: FakeProvider) -> None:
        self.app = app
        self.client = client
        self.provider = provider

    async def get(self, path: str, **options: Any) -> httpx.Response:
        return await self.client.get(path, **options)

    async def post(self, path: str, **options: Any) -> httpx.Response:
        return await self.client.post(path, **options)

    async def create(self, **body: Any) -> str:
        """A new conversation; returns its id."""
        response = await self.post("/api/conversations", json=body)
        assert response.status_code == 200, response.text
        return str(response.json()["conversation_id"])

    async def info(self, conversation_id: str) -> dict[str, Any]:
        response = await self.get(f"/api/conversations/{conversation_id}")
        assert response.status_code == 200
        found: dict[str, Any] = response.json()
        return found

    async def events(self, conversation_id: str, **query: Any) -> list[dict[str, Any]]:
        response = await self.get(f"/api/conversations/{conversation_id}/events", params={"limit": 100, **query})
        assert response.status_code == 200, response.text
        found: list[dict[str, Any]] = response.json()["events"]
        return found

    async def until(self, condition: Callable[[], Awaitable[bool]], *, seconds: float = WAIT_SECONDS) -> None:
        """Wait until something is so; `MODEL_SECONDS` where a model is asked, whose library loads meanwhile."""
        async with asyncio.timeout(seconds):
            while not await condition():  # noqa: ASYNC110 - what is waited for is only seen by asking
                await asyncio.sleep(0.03)

    async def until_running(self, conversation_id: str) -> None:
        async def ready() -> bool:
            return bool((await self.info(conversation_id))["status"] == "RUNNING")

        await self.until(ready)


async def shell(call: FakeRequest) -> FakeAnswer:
    """Every command succeeds and says what it was."""
    return command_result(f"ran {call.args.get('command', '')}")


async def kill(call: FakeRequest) -> FakeAnswer:
    return {}


async def facts(call: FakeRequest) -> FakeAnswer:
    return FACTS


MakeServer = Callable[..., Any]


@asynccontextmanager
async def serving(data_dir: Path, provider: SandboxProvider | None = None, **values: Any) -> AsyncIterator[Server]:
    """A server with these settings."""
    chosen = provider or FakeProvider(handlers={"shell.run": shell, "workspace.facts": facts, "shell.kill": kill})

    async def choose() -> SandboxSelection:
        return SandboxSelection(chosen, "fake sandboxes for tests")

    settings = Settings.model_validate(
        {"data_dir": data_dir, "requests_per_second": 0, "verify_search_key": False, "warm_sandboxes": 0, **values}
    )
    app = create_app(settings, choose=choose)
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with (
        app.api.router.lifespan_context(app.api),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:3000", timeout=WAIT_SECONDS) as client,
    ):
        yield Server(app, client, chosen)  # type: ignore[arg-type] # tests with another one do not ask for it


@pytest.fixture
def make_server(tmp_path: Path) -> MakeServer:
    """Starts a server with these settings; as a context manager, any number of times on the same data folder."""

    def make(provider: FakeProvider | None = None, **values: Any) -> Any:
        return serving(tmp_path / "data", provider, **values)

    return make


@pytest.fixture
async def server(make_server: MakeServer) -> AsyncIterator[Server]:
    async with make_server() as running:
        yield running
