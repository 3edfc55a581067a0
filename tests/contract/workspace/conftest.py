"""The real application in this process, with one conversation in a real sandbox: Docker's and the local one."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from agent_core.runtime.docker.provider import DockerProvider
from agent_core.runtime.local.provider import LocalProvider
from agent_core.runtime.sandbox import SandboxProvider
from agent_core.testing.sandbox_contract import output
from agent_core.tools.context import SandboxAccess
from server.app import Application, create_app
from server.session.sandboxes import SandboxSelection
from server.settings.settings import Settings

WAIT_SECONDS = 120.0


class Workspace:
    """A running conversation: `client` asks about it, `run` does something in its sandbox."""

    def __init__(self, app: Application, client: httpx.AsyncClient, conversation_id: str) -> None:
        self.app = app
        self.client = client
        self.id = conversation_id

    @property
    def sandbox(self) -> SandboxAccess:
        sandbox = self.app.services.manager.sandbox(self.id)
        assert sandbox is not None
        return sandbox

    @property
    def root(self) -> str:
        return self.sandbox.working_dir

    async def run(self, command: str) -> str:
        """Run a command that must succeed, in the workspace; returns what it prints."""
        return await output(self.sandbox, f"cd {shlex.quote(self.root)} && {{ {command}\n}}")  # type: ignore[arg-type]

    async def clean(self) -> None:
        """Make the workspace empty."""
        await self.run("chmod -R u+rwX . && find . -mindepth 1 -delete")

    async def get(self, what: str, **query: Any) -> httpx.Response:
        headers = query.pop("headers", None)
        return await self.client.get(f"/api/conversations/{self.id}/{what}", params=query, headers=headers)

    async def upload(self, *files: tuple[str | bytes, bytes], **query: Any) -> httpx.Response:
        """Upload files; the form is written here, since clients will not write every name."""
        form = b"".join(
            b'--limit\r\nContent-Disposition: form-data; name="files"; filename="'
            + (name.encode() if isinstance(name, str) else name)
            + b'"\r\nContent-Type: application/octet-stream\r\n\r\n'
            + data
            + b"\r\n"
            for name, data in files
        )
        return await self.send(form + b"--limit--\r\n", **query)

    async def send(self, form: bytes, **query: Any) -> httpx.Response:
        return await self.client.post(
            f"/api/conversations/{self.id}/upload-files",
            content=form,
            params=query,
            headers={"content-type": "multipart/form-data; boundary=limit"},
        )


def provider_named(name: str, folder: Path) -> SandboxProvider:
    return DockerProvider() if name == "docker" else LocalProvider(str(folder / "data"))


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=[pytest.param("docker", marks=pytest.mark.docker), pytest.param("local", marks=pytest.mark.bubblewrap)],
)
async def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Workspace]:
    folder = tmp_path_factory.mktemp("workspace")
    provider = provider_named(request.param, folder)

    async def choose() -> SandboxSelection:
        return SandboxSelection(provider, "for tests")

    settings = Settings(
        data_dir=folder / "data", requests_per_second=0, warm_sandboxes=0, max_upload_bytes=24 * 1024 * 1024
    )
    app = create_app(settings, choose=choose)
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with (
        app.api.router.lifespan_context(app.api),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:3000", timeout=WAIT_SECONDS) as client,
    ):
        created = await client.post("/api/conversations", json={})
        workspace = Workspace(app, client, created.json()["conversation_id"])
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while app.services.manager.sandbox(workspace.id) is None:  # noqa: ASYNC110 - seen only by asking
                    await asyncio.sleep(0.02)
            yield workspace
        finally:
            await client.delete(f"/api/conversations/{workspace.id}")


@pytest_asyncio.fixture(loop_scope="module")
async def workspace(shared: Workspace) -> Workspace:
    """The one sandbox of all tests of a module, empty."""
    await shared.clean()
    return shared
