"""Conversations that begin with a repository, from a real git server, in real sandboxes."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from agent_core.testing.sandbox_contract import eventually, output
from server.app import Application, create_app
from server.session.sandboxes import SandboxSelection
from server.settings.settings import Settings
from tests.contract.workspace.conftest import WAIT_SECONDS, Workspace, provider_named
from tests.contract.workspace.git_server import TOKEN, GitServer
from tests.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


HOOK = """echo "hook in $PWD with ${1-nothing}"
if git diff --cached --name-only | grep -q refused; then
    echo "this is refused" >&2
    exit 7
fi
"""
SCRIPTED = {
    "scripted": {
        "setup": "echo setting up in $PWD\nexport FROM_SETUP=kept\nset -eu\ncd /tmp\necho x >> ~/set-up\n",
        "pre_commit": HOOK,
    },
    "failing": {"setup": "echo before\nfalse\n"},
    "leaving": {"setup": "echo bye\nexit 3\n"},
    "endless": {"setup": "echo waiting\nsleep 1000\n"},
}


@pytest.fixture(scope="module")
def git_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GitServer]:
    server = GitServer(tmp_path_factory.mktemp("repositories"))
    for name in ("ann/private", "ann/open"):
        server.make(name)
    for name, scripts in SCRIPTED.items():
        server.make(f"ann/{name}", **scripts)
    yield server
    server.close()


class Cloning:
    """A server whose sandboxes come from one provider."""

    def __init__(self, app: Application, client: httpx.AsyncClient, folder: Path) -> None:
        self.app = app
        self.client = client
        self.folder = folder
        self._made: list[str] = []

    async def create(self, **body: Any) -> Workspace:
        """A conversation, once it runs."""
        return await self.again(await self.begin(**body))

    async def again(self, workspace: Workspace) -> Workspace:
        """The conversation, once it runs again."""
        await eventually(lambda: self.app.services.manager.sandbox(workspace.id) is not None, limit=WAIT_SECONDS)
        return workspace

    async def begin(self, **body: Any) -> Workspace:
        created = await self.client.post("/api/conversations", json=body)
        assert created.status_code == 200, created.text
        self._made.append(created.json()["conversation_id"])
        return Workspace(self.app, self.client, self._made[-1])

    async def end(self) -> None:
        for one in self._made:
            await self.client.delete(f"/api/conversations/{one}")
        self._made.clear()

    async def tokens(self, **tokens: Any) -> httpx.Response:
        return await self.client.post("/api/add-git-providers", json={"provider_tokens": tokens})


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=[pytest.param("docker", marks=pytest.mark.docker), pytest.param("local", marks=pytest.mark.bubblewrap)],
)
async def cloning(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, git_server: GitServer
) -> AsyncIterator[Cloning]:
    folder = tmp_path_factory.mktemp("cloning")
    provider = provider_named(request.param, folder)

    async def choose() -> SandboxSelection:
        return SandboxSelection(provider, "for tests")

    settings = Settings(
        data_dir=folder / "data",
        requests_per_second=0,
        git_hosts={"gitlab": git_server.url},
        sandbox_network="host-access",
        warm_sandboxes=0,
    )
    app = create_app(settings, choose=choose)
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with (
        app.api.router.lifespan_context(app.api),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:3000", timeout=WAIT_SECONDS) as client,
    ):
        made = Cloning(app, client, folder)
        stored = await made.tokens(github={"token": TOKEN, "host": git_server.url})
        assert stored.json() == {"message": "Git providers stored"}
        yield made
        await made.end()


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def ended(cloning: Cloning) -> AsyncIterator[None]:
    yield
    await cloning.end()


def printed(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


async def events(workspace: Workspace) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await workspace.get("events", limit=100)).json()["events"]
    return found


async def errors(workspace: Workspace) -> list[str]:
    return [one["content"] for one in await events(workspace) if one.get("observation") == "error"]


async def test_a_private_repository_is_there_when_the_conversation_starts_and_its_token_nowhere(
    cloning: Cloning, git_server: GitServer
) -> None:
    await cloning.client.post("/api/settings", json={"git_user_name": 'Ann "B"', "git_user_email": "ann@b.example"})
    workspace = await cloning.create(repository="ann/private", git_provider="github", selected_branch="other")
    assert TOKEN in git_server.passwords
    assert await workspace.run("cat private/file && git -C private branch --show-current") == "other\nother"
    remote = await workspace.run("git -C private remote -v && cat private/.git/config")
    assert f"{git_server.url}/ann/private.git" in remote
    assert "@" not in remote.replace("git@", "")
    assert await workspace.run("git -C private config user.name; git -C private config user.email") == (
        'Ann "B"\nann@b.example'
    )
    assert await workspace.run("git -C private log --format=%s") == "second\nfirst"
    places = "/workspace . ~ /tmp /run /etc /proc/[0-9]*/environ /proc/[0-9]*/cmdline"
    search = f"printf 'tok-%s' {TOKEN.removeprefix('tok-')} | grep -rlsaF -f - {places}"
    assert await workspace.run(f"{search} || true") == ""
    await workspace.run(f"printf 'tok-%s' {TOKEN.removeprefix('tok-')} > /tmp/control")
    assert await workspace.run(f"{search}; rm /tmp/control") == "/tmp/control"
    assert TOKEN not in str(await events(workspace))
    assert await workspace.run("ls -A | cat") == "private"
    for what in (cloning.folder, cloning.folder.parent):
        found = await asyncio.to_thread(printed, "grep", "-rla", TOKEN, str(what))
        assert [line for line in found.splitlines() if "git_server" not in line] == []
    assert await errors(workspace) == []
    info = (await cloning.client.get(f"/api/conversations/{workspace.id}")).json()
    assert (info["selected_repository"], info["selected_branch"]) == ("ann/private", "other")
    await workspace.run("echo more >> private/file")
    assert (await workspace.get("git/changes")).json() == [{"status": "M", "path": "file"}]
    assert (await workspace.get("git/diff", path="file")).json()["modified"] == "other\nmore\n"
    assert [one["subject"] for one in (await workspace.get("git/log")).json()["commits"]] == ["second", "first"]
    named = await workspace.sandbox.request("workspace.facts", {})
    assert named.result["git"]["branch"] == "other"
    assert [one["content"] for one in named.result["instructions"]] == ["Say ahoy in this repository."]


async def test_the_agent_can_push_with_a_command_that_names_the_token(cloning: Cloning, git_server: GitServer) -> None:
    workspace = await cloning.create(repository="ann/private")
    url = git_server.url.replace("http://", "http://x:$GITHUB_TOKEN@")
    name = "-c user.name=ann -c user.email=ann@b.example"
    command = (
        f"cd private && git checkout -qb {workspace.id} && git {name} commit -q --allow-empty -m pushed && "
        f"git push -q {url}/ann/private.git {workspace.id} 2>&1; echo ended $?"
    )
    await workspace.client.post(
        f"/api/conversations/{workspace.id}/events", json={"action": "run", "args": {"command": command}}
    )

    async def answer() -> str | None:
        found = await events(workspace)
        (run,) = [one["id"] for one in found if one.get("action") == "run"]
        return next((one["content"] for one in found if one.get("cause") == run), None)

    await until(answer)
    assert str(await answer()).strip() == "ended 0", await events(workspace)
    bare = str(git_server.folder / "ann/private.git")
    assert (
        await asyncio.to_thread(printed, "git", "-C", bare, "branch", "--list", workspace.id)
    ).strip() == workspace.id
    assert TOKEN not in str(await events(workspace))


REFUSED = [
    ({"repository": "ann/open", "selected_branch": "gone"}, "it has no branch 'gone'"),
    ({"repository": "ann/missing"}, "there is no such repository"),
    ({"repository": "ann/private", "git_provider": "gitlab"}, "wants a valid token"),
    ({"repository": "../../etc", "git_provider": "gitlab"}, "its name must be words"),
    ({"repository": "ann/open", "selected_branch": "--upload-pack=evil"}, "can be no branch's name"),
]


async def test_what_cannot_be_cloned_is_said_and_the_conversation_goes_on(cloning: Cloning) -> None:
    begun = await asyncio.gather(*(cloning.create(**body) for body, _ in REFUSED))
    for workspace, (body, words) in zip(begun, REFUSED, strict=True):
        (error,) = await errors(workspace)
        assert f"The repository {body['repository']} could not be cloned: " in error
        assert words in error
        assert await workspace.run("ls -A | cat") == ""
        assert (await workspace.get("git/changes")).status_code == 404
        changed = [one for one in await events(workspace) if one.get("observation") == "agent_state_changed"]
        assert changed[-1]["extras"]["agent_state"] == "awaiting_user_input"


async def test_a_clone_that_hangs_ends_with_its_conversation(cloning: Cloning, git_server: GitServer) -> None:
    git_server.asked.clear()
    workspace = await cloning.begin(repository="ann/slow")
    await eventually(git_server.asked.is_set, limit=WAIT_SECONDS)
    info = (await cloning.client.get(f"/api/conversations/{workspace.id}")).json()
    assert info["status"] == "STARTING"
    async with asyncio.timeout(30):
        assert (await cloning.client.delete(f"/api/conversations/{workspace.id}")).json() is True


async def run_of_setup(workspace: Workspace) -> dict[str, Any]:
    """The observation of the setup script."""
    (run,) = [one for one in await events(workspace) if one.get("observation") == "run"]
    return run


async def test_a_repositorys_setup_script_runs_once_when_it_was_cloned(cloning: Cloning) -> None:
    workspace = await cloning.create(repository="ann/scripted")
    run = await run_of_setup(workspace)
    (action,) = [one for one in await events(workspace) if one.get("action") == "run"]
    assert (action["source"], run["source"], run["cause"]) == ("environment", "environment", action["id"])
    assert run["content"].strip() == "setting up in /workspace/scripted"
    assert run["extras"]["metadata"]["exit_code"] == 0
    assert await errors(workspace) == []
    place, exported, flags = (await output(workspace.sandbox, "pwd; false; echo $FROM_SETUP; echo $-")).split()  # type: ignore[arg-type]
    assert (place, exported) == ("/workspace", "kept")
    assert not {"e", "u"} & set(flags)
    assert await workspace.run("git -C scripted status --porcelain") == ""
    await cloning.client.post(f"/api/conversations/{workspace.id}/stop")
    await cloning.client.post(f"/api/conversations/{workspace.id}/start", json={})
    await eventually(lambda: cloning.app.services.manager.sandbox(workspace.id) is not None, limit=WAIT_SECONDS)
    assert await workspace.run("cat ~/set-up") == "x"


async def test_a_setup_script_that_its_end_has_cut_off_is_not_forgotten_at_the_next_start(
    cloning: Cloning, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached = asyncio.Event()

    async def cut(*_: object, **__: object) -> None:
        reached.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as patched:
        patched.setattr("agent_core.session.agent_session.run_scripts", cut)
        workspace = await cloning.begin(repository="ann/scripted")
        async with asyncio.timeout(WAIT_SECONDS):
            await reached.wait()
        assert (await cloning.client.post(f"/api/conversations/{workspace.id}/stop")).status_code == 200
    for _ in range(2):
        started = await cloning.client.post(f"/api/conversations/{workspace.id}/start", json={})
        assert started.status_code == 200, started.text
        await cloning.again(workspace)
        found = await workspace.run("cat ~/set-up; cd scripted/.git; ls hooks/pre-commit; ls | grep drydock || true")
        assert found.split() == ["x", "hooks/pre-commit"]
        await cloning.client.post(f"/api/conversations/{workspace.id}/stop")
    assert (await run_of_setup(workspace))["content"].strip() == "setting up in /workspace/scripted"
    assert await errors(workspace) == []


async def test_a_repositorys_pre_commit_script_is_gits_hook_and_runs_what_was_there_too(cloning: Cloning) -> None:
    workspace = await cloning.create(repository="ann/scripted")
    commit = "cd scripted && echo {0} > {0} && git add {0} && git -c user.name=a -c user.email=a@b commit -qm {0} 2>&1"
    assert await workspace.run(commit.format("fine")) == "hook in /workspace/scripted with nothing"
    assert await workspace.run(f"({commit.format('refused')}) || echo ended with $?") == (
        "hook in /workspace/scripted with nothing\nthis is refused\nended with 1"
    )
    assert await workspace.run("git -C scripted log --format=%s -1") == "fine"
    local = "cd scripted && printf '#!/bin/sh\\necho local\\n' > .git/hooks/pre-commit.local"
    assert await workspace.run(f"{local} && chmod +x .git/hooks/pre-commit.local; git reset -q; rm refused") == ""
    assert await workspace.run(commit.format("again")) == "local\nhook in /workspace/scripted with nothing"
    assert await workspace.run("cd scripted && rm -rf .openhands && " + commit.format("gone").partition("&& ")[2]) == (
        "local\npre-commit: .openhands/pre-commit.sh is not there, so it is not run"
    )


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("failing", "it ended with exit code 1."),
        ("leaving", "exit"),
        ("endless", "it took longer than 2 s and was stopped."),
    ],
)
async def test_a_setup_script_that_fails_is_told_and_the_conversation_goes_on(
    cloning: Cloning, name: str, says: str
) -> None:
    object.__setattr__(cloning.app.services.settings, "repository_setup_seconds", 2.0)
    workspace = await cloning.create(repository=f"ann/{name}")
    (error,) = await errors(workspace)
    assert error.startswith(f".openhands/setup.sh of ann/{name} failed: ")
    assert says in error
    run = await run_of_setup(workspace)
    assert run["content"].split()[0] in SCRIPTED[name]["setup"]
    assert await workspace.run("echo here") == "here"
    changed = [one for one in await events(workspace) if one.get("observation") == "agent_state_changed"]
    assert changed[-1]["extras"]["agent_state"] == "awaiting_user_input"
