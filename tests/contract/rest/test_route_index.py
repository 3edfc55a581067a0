"""Every route of the protocol's index, and every error that it documents, against a server with a real sandbox."""

from __future__ import annotations

import io
import zipfile
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from agent_core.runtime.local.provider import LocalProvider
from agent_core.testing.sandbox_contract import output
from tests.contract.rest.conftest import Server, serving
from tests.contract.rest.played.github import PlayedGitHub
from tests.contract.rest.played.world import TOKEN
from tests.contract.rest.route_index import ROWS, Row
from tests.contract.rest.shapes import differences

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.bubblewrap]

FILES = """
mkdir boat && cd boat && git init -q && echo old > sail.txt && git add . \
&& git -c user.name=a -c user.email=a@b.c commit -q -m first && echo new > sail.txt && echo x > more.txt \
&& cd .. && printf 'a\\0b' > picture.bin
"""


class Index:
    """A server with the conversations that the rows name."""

    def __init__(self, server: Server, running: str, stopped: str) -> None:
        self.server = server
        self.running = running
        self.stopped = stopped

    async def path(self, row: Row) -> str:
        fresh = await self.server.create() if "{fresh}" in row.path else ""
        return row.path.format(c=self.running, stopped=self.stopped, unknown="unknown", fresh=fresh)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def index(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Index]:
    folder = tmp_path_factory.mktemp("index")
    async with PlayedGitHub() as github, serving(folder / "data", LocalProvider(str(folder / "data"))) as server:
        tokens = {"provider_tokens": {"github": {"token": TOKEN, "host": github.host}}}
        assert (await server.post("/api/add-git-providers", json=tokens)).status_code == 200
        await server.post("/api/settings", json={"language": "en"})
        running, stopped = await server.create(), await server.create()
        try:
            for conversation_id in (running, stopped):
                await server.until_running(conversation_id)
            sandbox = server.app.services.manager.sandbox(running)
            assert sandbox is not None
            await output(sandbox, f"cd {sandbox.working_dir} && {FILES}")  # type: ignore[arg-type]
            await server.post(f"/api/conversations/{stopped}/stop")
            yield Index(server, running, stopped)
        finally:
            for info in (await server.get("/api/conversations?limit=100")).json()["results"]:
                await server.client.delete(f"/api/conversations/{info['conversation_id']}")


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
async def test_a_row_of_the_index_is_answered_as_it_says(index: Index, row: Row) -> None:
    response = await index.server.client.request(row.method, await index.path(row), **row.sent)
    assert response.status_code == row.status, response.text
    assert response.headers["content-type"] == "application/json"
    assert differences(response.json(), row.shape) == []


async def test_the_workspace_comes_as_a_zip_file(index: Index) -> None:
    response = await index.server.get(f"/api/conversations/{index.running}/zip-directory")
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/zip"
    assert 'filename="workspace.zip"' in response.headers["content-disposition"]
    assert "boat/sail.txt" in " ".join(zipfile.ZipFile(io.BytesIO(response.content)).namelist())


async def test_lists_for_choosing_are_sorted(index: Index) -> None:
    for what in ("models", "agents", "security-analyzers"):
        found = (await index.server.get(f"/api/options/{what}")).json()
        assert found == sorted(found)
        assert found


async def test_what_is_of_the_other_generation_is_null_for_each_id(index: Index) -> None:
    for route in ("sandboxes?id=a&id=b", "app-conversations?ids=a&ids=b", "app-conversations/start-tasks?ids=a&ids=b"):
        assert (await index.server.get(f"/api/v1/{route}")).json() == [None, None], route
