"""Repositories whose files name the image of their sandbox, from a real git server, in real sandboxes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from agent_core.runtime.channel.connection import SandboxConnection
from agent_core.runtime.docker.objects import DockerObjects
from server.session.agents.agent_sessions import AgentSessions
from tests.contract.workspace.conftest import WAIT_SECONDS
from tests.contract.workspace.git_server import GitServer
from tests.contract.workspace.test_cloning import Cloning, cloning, ended, errors

__all__ = ["cloning", "ended"]  # fixtures
pytestmark = pytest.mark.asyncio(loop_scope="module")

OTHER = "drydock/sandbox:browser"


@pytest.fixture(scope="module")
def git_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GitServer]:
    server = GitServer(tmp_path_factory.mktemp("repositories"))
    server.make("ann/named", {".openhands/sandbox.toml": f'image = "{OTHER}"\n'})
    server.make("ann/container", {".devcontainer/devcontainer.json": f'{{"image": "{OTHER}", /* ours */ }}'})
    server.make("ann/refused", {".devcontainer.json": '{"image": "mcr.microsoft.com/devcontainers/base:1"}'})
    server.make("ann/wrong", {".openhands/sandbox.toml": 'imag = "a:1"'})
    server.make("ann/missing", {".openhands/sandbox.toml": 'image = "drydock/sandbox:never-built"'})
    yield server
    server.close()


def image_of(cloning: Cloning, conversation_id: str) -> str:
    manager = cloning.app.services.manager
    connection = manager.sandbox(conversation_id)
    assert isinstance(connection, SandboxConnection)
    return connection.sandbox.spec.image


def is_local(cloning: Cloning) -> bool:
    choice = cloning.app.services.sandboxes.choice
    return choice is not None and choice.name == "local"


@pytest.mark.parametrize("name", ["ann/named", "ann/container"])
async def test_the_sandbox_is_made_from_the_image_that_the_repository_names_with_the_workspace_that_was_cloned(
    cloning: Cloning, name: str
) -> None:
    workspace = await cloning.create(repository=name, git_provider="github")
    folder = name.partition("/")[2]
    told = await errors(workspace)  # first: where it could not be cloned, they say why
    assert ["local sandboxes have no image" in one for one in told] == [True] * is_local(cloning), told
    assert await workspace.run(f"cat {folder}/file; touch made-by-me") == "main"
    if is_local(cloning):
        return
    assert image_of(cloning, workspace.id) == OTHER
    assert await workspace.run("ls -d /usr/share/doc/chromium-common")  # which the usual image does not have
    await cloning.client.post(f"/api/conversations/{workspace.id}/stop")
    await cloning.client.post(f"/api/conversations/{workspace.id}/start", json={})
    again = await cloning.again(workspace)
    assert image_of(cloning, again.id) == OTHER
    assert "made-by-me" in await again.run("ls")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ann/refused", "the image mcr.microsoft.com/devcontainers/base:1 is not one that conversations may choose"),
        ("ann/wrong", "did you mean image"),
        ("ann/missing", "has not been built"),
    ],
)
async def test_what_cannot_be_is_told_in_the_conversation_and_the_usual_image_is_used(
    cloning: Cloning, name: str, words: str
) -> None:
    workspace = await cloning.create(repository=name, git_provider="github")
    [error] = await errors(workspace)
    assert f"The file {name.partition('/')[2]}/" in error
    assert words in error or (is_local(cloning) and "have no image" in error)
    assert image_of(cloning, workspace.id) == "drydock/sandbox:base"
    assert await workspace.run("cat */file") == "main"


@pytest.mark.parametrize("moment", ["removed", "made"])
async def test_a_sandbox_whose_making_from_that_image_is_cut_off_is_made_at_the_next_start(
    cloning: Cloning, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    if is_local(cloning):
        return
    reached = asyncio.Event()
    create = DockerObjects.create

    async def cut(objects: DockerObjects, network: str, creation: str, image: str) -> None:
        if image == OTHER:
            reached.set()
            await asyncio.Event().wait()
        await create(objects, network, creation, image)

    async def unsettled(*_: object) -> None:
        reached.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as patched:
        if moment == "removed":
            patched.setattr(DockerObjects, "create", cut)
        else:
            patched.setattr(AgentSessions, "_settled", unsettled)
        workspace = await cloning.begin(repository="ann/named", git_provider="github")
        async with asyncio.timeout(WAIT_SECONDS):
            await reached.wait()
        assert (await cloning.client.post(f"/api/conversations/{workspace.id}/stop")).status_code == 200
    await cloning.client.post(f"/api/conversations/{workspace.id}/start", json={})
    await cloning.again(workspace)
    assert image_of(cloning, workspace.id) == OTHER
    found = await workspace.run("cat named/file; ls -d /usr/share/doc/chromium-common")
    assert found.split() == ["main", "/usr/share/doc/chromium-common"]
    assert await errors(workspace) == []


async def test_a_request_that_names_an_image_is_not_overruled(cloning: Cloning) -> None:
    if is_local(cloning):
        return
    sandbox = {"image": "drydock/sandbox:base"}
    workspace = await cloning.create(repository="ann/named", git_provider="github", sandbox=sandbox)
    assert image_of(cloning, workspace.id) == "drydock/sandbox:base"
    assert await errors(workspace) == []
