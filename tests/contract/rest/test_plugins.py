"""Plugins from git addresses: installed, listed, updated, switched and removed, and what conversations get of them."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_core.destinations import Destinations
from agent_core.errors import SandboxLostError
from agent_core.runtime.local.provider import LocalProvider
from agent_core.testing.fake_sandbox import FakeAnswer, FakeProvider, FakeRequest
from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import call, finish
from server.db.repositories.plugins import MAX_PLUGINS, SERVER, PluginRepository, StoredPlugin, owner_of
from server.session.agents import plugin_fetch
from server.session.agents.plugins import FOLDER, Plugins, source_of
from tests.contract.rest.conftest import MakeServer, Server, serving
from tests.contract.rest.test_agent_context import restart, say, store, talking, workspace
from tests.contract.workspace.git_server import TOKEN, GitServer, git, own_address
from tests.unit.mcp.conftest import fake

HOOKS = {"PostToolUse": [{"matcher": "terminal", "hooks": [{"command": 'sh "$DRYDOCK_PLUGIN_ROOT/hooks/seen.sh"'}]}]}
FILES = {
    ".plugin/plugin.json": '{"name": "tools", "version": "2.0", "description": "Of the harbour."}',
    "skills/boats.md": "---\ntriggers: [boat]\n---\nBoats float.",
    "skills/rule.md": "Always use tabs.",
    "skills/knots/SKILL.md": "---\nname: knots\ndescription: How to tie.\n---\nTie it.",
    "skills/knots/scripts/tie.sh": "echo tied",
    "skills/broken.md": "---\nname: broken\ntype: magic\n---\nNo.",
    "commands/review.md": "Review all of it.",
    "agents/mate.md": "---\nname: mate\ndescription: Helps.\ntools: [terminal]\n---\nHelp.",
    "hooks/hooks.json": json.dumps(HOOKS),
    "hooks/seen.sh": 'echo hook-ran-in-$(basename "$CLAUDE_PLUGIN_ROOT") > "$OPENHANDS_PROJECT_DIR/seen"; echo \'{}\'',
}


@pytest.fixture
def git_server(tmp_path: Path) -> Iterator[GitServer]:
    server = GitServer(tmp_path / "repositories")
    yield server
    server.close()


def with_files() -> FakeProvider:
    """Sandboxes that take files."""

    async def written(call: FakeRequest) -> FakeAnswer:
        return {"path": call.args["path"], "created": True, "size": len(call.blob or b"")}

    provider = workspace()
    provider.handlers["file.write"] = written
    return provider


def address(git_server: GitServer, name: str) -> str:
    """Where a repository is, on this machine, which a server on loopback may ask."""
    return f"http://127.0.0.1:{git_server.url.rpartition(':')[2]}/{name}.git"


@pytest.fixture
def tools(git_server: GitServer) -> str:
    git_server.publish("ann/tools", FILES)
    return address(git_server, "ann/tools")


async def install(server: Server, source: str, **more: Any) -> tuple[int, dict[str, Any]]:
    response = await server.post("/api/plugins", json={"source": source, **more})
    return response.status_code, response.json()


async def listed(server: Server) -> list[dict[str, Any]]:
    response = await server.get("/api/plugins")
    assert response.status_code == 200
    found: list[dict[str, Any]] = response.json()["plugins"]
    return found


async def errors(server: Server, conversation_id: str) -> list[str]:
    events = await server.events(conversation_id)
    return [one["content"] for one in events if one.get("observation") == "error"]


def known(request: ModelRequest) -> str:
    return json.dumps(request.json)


async def test_a_plugin_is_installed_at_the_commit_that_is_there_listed_switched_and_removed(
    server: Server, git_server: GitServer, tools: str
) -> None:
    commit = git("-C", str(git_server.folder / "ann-tools-work"), "rev-parse", "HEAD").strip()
    status, made = await install(server, tools)
    assert (status, made.pop("installed_at")[-1:]) == (201, "Z")
    (problem,) = made.pop("problems")
    assert "plugin tools/skills/broken.md, line 3: type: 'magic' is none of" in problem
    expected = {
        "name": "tools",
        "version": "2.0",
        "description": "Of the harbour.",
        "source": tools,
        "ref": "",
        "path": "",
        "commit": commit,
        "enabled": True,
        "for_all": False,
        "skills": ["boats", "knots", "rule", "tools:review"],
        "agents": ["mate"],
        "mcp_servers": [],
        "hooks": ["PostToolUse"],
    }
    assert made == expected
    (shown,) = await listed(server)
    assert {name: shown[name] for name in expected} == expected
    assert (await server.client.patch("/api/plugins/tools", json={"enabled": False})).status_code == 200
    assert (await server.get("/api/plugins/tools")).json()["enabled"] is False
    assert (await server.client.delete("/api/plugins/tools")).status_code == 200
    assert await listed(server) == []
    for method in ("GET", "PATCH", "DELETE"):
        gone = await server.client.request(method, "/api/plugins/tools", json={"enabled": True})
        assert (gone.status_code, "no plugin 'tools' of yours" in gone.text) == (404, True)


async def test_an_update_is_asked_for_and_says_from_which_commit_to_which(
    make_server: MakeServer, git_server: GitServer, tools: str
) -> None:
    async with talking(make_server, 2, with_files()) as (server, model):
        _, made = await install(server, tools)
        await server.client.patch("/api/plugins/tools", json={"enabled": True})
        new = git_server.commit("ann/tools", {"skills/rule.md": "Always use spaces."})
        await say(server, await server.create(), "Begin.")
        assert "Always use tabs." in known(model.last_request), "nothing changes by itself"
        same = await server.post("/api/plugins/tools/update", json={"ref": made["commit"]})
        assert (same.json()["old_commit"], same.json()["new_commit"]) == (made["commit"], made["commit"])
        done = (await server.post("/api/plugins/tools/update", json={"ref": "main"})).json()
        assert (done["old_commit"], done["new_commit"], done["plugin"]["commit"]) == (made["commit"], new, new)
        await say(server, await server.create(), "Begin.")
        assert "Always use spaces." in known(model.last_request)
        git_server.commit("ann/tools", {".plugin/plugin.json": '{"name": "another"}'})
        refused = await server.post("/api/plugins/tools/update", json={})
        assert (refused.status_code, "calls itself 'another'" in refused.text) == (400, True)
        assert (await listed(server))[0]["commit"] == new
        assert (await server.post("/api/plugins/none/update", json={})).status_code == 404


async def test_conversations_have_what_enabled_plugins_bring_and_say_what_is_broken(
    make_server: MakeServer, tools: str
) -> None:
    async with talking(make_server, 4, with_files()) as (server, model):
        await install(server, tools)
        conversation_id = await server.create(agent_options={"enable_sub_agents": True})
        await say(server, conversation_id, "My boat leaks. /tools:review")
        for text in ("Boats float.", "Always use tabs.", "Review all of it.", "How to tie.", "mate: Helps."):
            assert text in known(model.last_request), text
        (problem,) = await errors(server, conversation_id)
        assert "skills/broken.md, line 3" in problem
        (sandbox,) = server.provider.sandboxes.values()
        written = {one.args["path"]: one.args["mode"] for one in sandbox.runner.ran if one.op == "file.write"}
        assert written["/tmp/drydock-plugins/tools/skills/knots/scripts/tie.sh"] == 0o644
        await server.client.patch("/api/plugins/tools", json={"enabled": False})
        await say(server, await server.create(), "My boat leaks.")
        assert "Boats float." not in known(model.last_request)


@pytest.mark.bubblewrap
async def test_a_plugins_hook_runs_in_the_sandbox_with_the_plugins_files_and_nowhere_else(
    tmp_path: Path, tools: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    turns = [call("terminal", {"command": "true"}), call("terminal", {"command": "cat seen"}), finish("Done.")]
    async with (
        ModelServer(turns) as model,
        serving(tmp_path / "data", LocalProvider(str(tmp_path / "data")), generate_titles=False) as server,
    ):
        await store(server, llm_model="openai/x", llm_base_url=model.url, llm_api_key="key")
        assert (await install(server, tools))[0] == 201
        conversation_id = await server.create()
        try:
            await say(server, conversation_id, "Begin.")
            runs = [one for one in await server.events(conversation_id) if one.get("observation") == "run"]
            assert "hook-ran-in-tools" in runs[-1]["content"]
            assert "Always use tabs." in known(model.requests[0])
        finally:
            await server.client.delete(f"/api/conversations/{conversation_id}")


async def test_the_servers_of_a_plugin_run_in_sandboxes_and_never_on_the_servers_host(
    make_server: MakeServer, git_server: GitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_core.mcp.servers.FIRST_STEP_SECONDS", 60.0)
    git_server.publish("ann/harbour", {".mcp.json": json.dumps({"mcpServers": {"harbour": fake("echo")}})})
    for where, has_it in (("sandbox", True), ("host", False), ("never", False)):
        async with talking(make_server, 1, with_files(), mcp_programs=where) as (server, model):
            await install(server, address(git_server, "ann/harbour"))
            conversation_id = await server.create()
            await say(server, conversation_id, "Begin.")
            tools = {tool["function"]["name"] for tool in model.last_request.json["tools"]}
            assert ("echo" in tools) is has_it, where
            assert [("starts no programs" in text) for text in await errors(server, conversation_id)] == (
                [] if has_it else [True]
            )


async def test_the_servers_of_a_plugin_are_lent_no_secret_and_one_of_the_users_own_takes_their_place(
    make_server: MakeServer, git_server: GitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_core.mcp.servers.FIRST_STEP_SECONDS", 60.0)
    there = {"url": "http://127.0.0.1:9/${GRAIN_TOKEN}", "headers": {"x-a": "$GRAIN_TOKEN"}, "lends_secrets": True}
    program = fake("echo", server_env={"A": "${GRAIN_TOKEN}"})
    of_skill = f"---\nmcp_tools: {json.dumps({'mcpServers': {'skills': there}})}\n---\nAlways."
    files = {
        ".mcp.json": json.dumps({"mcpServers": {"harbour": there, "program": program}}),
        "skills/always.md": of_skill,
    }
    git_server.publish("ann/harbour", files)
    async with talking(make_server, 2, with_files()) as (server, model):
        stored = {"name": "GRAIN_TOKEN", "value": "grain-secret-value"}
        assert (await server.post("/api/secrets", json=stored)).status_code == 201
        assert (await install(server, address(git_server, "ann/harbour")))[0] == 201
        conversation_id = await server.create()
        await say(server, conversation_id, "Begin.")
        refused = [text for text in await errors(server, conversation_id) if "it refers to GRAIN_TOKEN" in text]
        assert sorted(text.split("'")[1] for text in refused) == ["harbour", "program", "skills"]
        await store(server, mcp_config={"stdio_servers": [{"name": "program", **program}]})
        await say(server, await server.create(), "Begin.")
        assert "echo" in {tool["function"]["name"] for tool in model.last_request.json["tools"]}


async def test_a_repository_that_is_one_skill_is_a_plugin_and_so_is_a_folder_of_one(
    server: Server, git_server: GitServer
) -> None:
    skill = "---\nname: knots\ndescription: How to tie.\n---\nTie it."
    git_server.publish("ann/knots", {"SKILL.md": skill})
    git_server.publish("ann/many", {"deep/knots-too/skills/a.md": "A.", "deep/other/notes.txt": "No plugin."})
    _, made = await install(server, address(git_server, "ann/knots"))
    assert (made["name"], made["skills"]) == ("knots", ["knots"])
    _, made = await install(server, address(git_server, "ann/many"), path="deep/knots-too/")
    assert (made["name"], made["path"], made["skills"]) == ("knots-too", "deep/knots-too", ["a"])
    status, told = await install(server, address(git_server, "ann/many"), path="deep/other")
    assert (status, "other: is no plugin" in told["error"]) == (400, True)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"source": "file:///etc"}, "source: give the https address"),
        ({"source": "ext::sh -c evil"}, "source: give the https address"),
        ({"source": "git@host:ann/tools.git"}, "source: give the https address"),
        ({"source": "ssh://host/ann/tools.git"}, "source: give the https address"),
        ({"source": "https://ann:pw@host/x.git"}, "source: give the address alone"),
        ({"source": "https://host/x.git?a=b"}, "source: give the address alone"),
        ({"source": "https://host/a b.git"}, "source: an address is ASCII without spaces"),
        ({"source": "https://10.0.0.1/x.git"}, "setting plugin_hosts"),
        ({"source": "https://169.254.169.254/x.git"}, "is no public address"),
        ({"source": "http://8.8.8.8/x.git"}, "give an https address"),
        ({"source": "https://nowhere.invalid/x.git"}, "the host nowhere.invalid is not known"),
        ({"source": "TOOLS", "ref": "--upload-pack=evil"}, "ref: "),
        ({"source": "TOOLS", "ref": "a..b"}, "ref: "),
        ({"source": "TOOLS", "ref": "no-such-branch"}, "has no branch, tag or commit of this name"),
        ({"source": "TOOLS", "ref": "a" * 40}, "cannot be fetched"),
        ({"source": "TOOLS", "path": "../x"}, "path: "),
        ({"source": "TOOLS", "path": "no/folder"}, "path: TOOLS has no folder 'no/folder' at"),
        ({"source": "TOOLS", "path": "skills/knots/scripts"}, "is no plugin"),
    ],
)
async def test_what_cannot_be_installed_is_refused_with_the_field_and_nothing_is_kept(
    server: Server, tools: str, body: dict[str, str], problem: str
) -> None:
    status, told = await install(server, **{name: value.replace("TOOLS", tools) for name, value in body.items()})
    assert status == 400, told
    assert problem.replace("TOOLS", tools) in told["error"]
    assert await server.app.services.database.plugins.all(owner_of("")) == []


async def test_a_repository_that_is_not_there_or_private_is_told_and_a_token_of_its_provider_opens_it(
    make_server: MakeServer, git_server: GitServer
) -> None:
    git_server.publish("ann/private", FILES)
    async with make_server(verify_git_tokens=False) as server:
        for name in ("ann/none", "ann/private"):
            status, told = await install(server, address(git_server, name))
            assert (status, "there is no such repository" in told["error"]) == (400, True), told
        host = address(git_server, "x").removesuffix("/x.git")
        tokens = {"provider_tokens": {"github": {"token": TOKEN, "host": host}}}
        assert (await server.post("/api/add-git-providers", json=tokens)).status_code == 200
        assert (await install(server, address(git_server, "ann/private")))[0] == 201
        assert git_server.passwords, "it was sent"


@pytest.mark.parametrize(
    ("limit", "files", "problem"),
    [
        ("MAX_FILES", {f"skills/{number}.md": "Text." for number in range(5)}, "it has 5 files"),
        ("MAX_FILE_BYTES", {"skills/a.md": "x" * 100}, "skills/a.md: it has more than"),
        ("MAX_BYTES", {"skills/a.md": "x" * 100}, "it has more than"),
        ("_MAX_LISTING", {"skills/a.md": "x"}, "it has too many files"),
    ],
)
async def test_what_is_too_large_is_refused(
    server: Server,
    git_server: GitServer,
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
    files: dict[str, str],
    problem: str,
) -> None:
    monkeypatch.setattr(plugin_fetch, limit, 4)
    git_server.publish("ann/large", files)
    status, told = await install(server, address(git_server, "ann/large"))
    assert (status, problem in told["error"]) == (400, True), told
    assert await listed(server) == []


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({".plugin/plugin.json": "[" * 100_000}, ".plugin/plugin.json: is no JSON"),
        ({".mcp.json": '{"mcpServers": {"sea": {"url": "${CLAUDE_PLUGIN_ROOT}"}}}'}, ".mcp.json: sea.url: "),
    ],
)
async def test_files_that_cannot_be_used_are_named(
    server: Server, git_server: GitServer, files: dict[str, str], problem: str
) -> None:
    git_server.publish("ann/broken", files)
    status, told = await install(server, address(git_server, "ann/broken"))
    assert (status, problem in told.get("error", "")) == (400, True), told


async def test_git_may_take_so_much_memory(
    server: Server, git_server: GitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "git").write_text("#!/bin/sh\nulimit -v >&2\nexit 1\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    status, told = await install(server, address(git_server, "ann/tools"))
    assert (status, str(plugin_fetch._MAX_MEMORY_KIB) in told["error"]) == (400, True), told


async def test_an_address_whose_name_leads_out_of_its_folder_writes_nothing_there(
    server: Server, git_server: GitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    git_server.publish("ann/tools", FILES)
    (git_server.folder / "ann/tools.git").rename(git_server.folder / "ann/...git")
    status, told = await install(server, address(git_server, "ann/.."))
    assert (status, told["name"]) == (201, "tools"), told
    assert list(scratch.iterdir()) == []


async def test_two_plugins_of_the_operators_with_one_name_are_told_and_not_fetched_again_and_again(
    make_server: MakeServer, git_server: GitServer, tools: str
) -> None:
    other = f"{address(git_server, 'ann/other')}#{git_server.publish('ann/other', FILES)}"
    commit = git("-C", str(git_server.folder / "ann-tools-work"), "rev-parse", "HEAD").strip()
    async with make_server(with_files(), plugins=(f"{tools}#{commit}", other)) as server:
        told = [await server.app.services.plugins.of_conversation("") for _ in range(2)]
        asked = git_server.requests.total()
        assert [len(one.problems) for one in told] == [2, 2], "the broken skill, and the name"
        assert "another plugin of the setting plugins is called 'tools'" in str(told[0].problems[0])
        await server.app.services.plugins.of_conversation("")
        assert git_server.requests.total() == asked


async def test_conversations_do_not_wait_for_what_users_install(
    server: Server, git_server: GitServer, tools: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.session.agents.plugins.AT_ONCE", 1)
    commit = git("-C", str(git_server.folder / "ann-tools-work"), "rev-parse", "HEAD").strip()
    settings = server.app.services.settings.model_copy(update={"plugins": (f"{tools}#{commit}",)})
    plugins = Plugins(server.app.services.database, settings, Destinations(loopback=True))
    slow = asyncio.create_task(plugins.install("ann", source_of(address(git_server, "ann/slow"), "", ""), None))
    try:
        await asyncio.to_thread(git_server.asked.wait)
        assert [one.path for one in (await plugins.of_conversation("")).folders] == [f"{FOLDER}/tools"]
        assert not slow.done()
    finally:
        slow.cancel()
        await asyncio.wait([slow])


async def test_a_server_that_does_not_answer_is_given_up(
    server: Server, git_server: GitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin_fetch, "FETCH_SECONDS", 0.5)
    status, told = await install(server, address(git_server, "ann/slow"))
    assert (status, "was not fetched within 0.5 s" in told["error"]) == (400, True)


async def test_links_and_submodules_are_left_out_and_no_configuration_or_hook_of_the_host_counts(
    server: Server, git_server: GitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git_server.publish("ann/links", {"skills/a.md": "A."})
    work = git_server.folder / "ann-links-work"
    os.symlink("/etc/passwd", work / "skills/b.md")
    git("-C", str(work), "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},skills/module")
    git_server.commit("ann/links", {"skills/c.md": "C."})
    evil = tmp_path / "evil"
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(
        f'[core]\n\tfsmonitor = "touch {evil}"\n[credential]\n\thelper = "!touch {evil}"\n'
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_SSH_COMMAND", f"touch {evil}")
    _, made = await install(server, address(git_server, "ann/links"))
    assert made["skills"] == ["a", "c"]
    assert not evil.exists()


async def test_the_same_is_installed_once_however_often_it_is_asked_for_at_once(
    server: Server, git_server: GitServer, tools: str
) -> None:
    answers = await asyncio.gather(*(install(server, tools) for _ in range(5)))
    assert [status for status, _ in answers] == [201] * 5
    assert len({made["installed_at"] for _, made in answers}) == 1
    git_server.publish("bob/tools", FILES)
    status, told = await install(server, address(git_server, "bob/tools"))
    assert (status, "there is a plugin 'tools' already" in told["error"]) == (409, True)
    assert [one["source"] for one in await listed(server)] == [tools]


async def test_a_user_has_so_many_and_another_users_are_not_shown(
    server: Server, git_server: GitServer, tools: str
) -> None:
    await install(server, tools)
    plugins = server.app.services.database.plugins
    (made,) = await plugins.all(owner_of(""))

    def another(owner: str, name: str) -> StoredPlugin:
        return StoredPlugin(owner=owner, name=name, source=tools, commit=made.commit, archive=made.archive)

    await plugins.add(another(owner_of("ann"), "tools"))
    assert len(await listed(server)) == 1
    for number in range(MAX_PLUGINS - 1):
        await plugins.add(another(owner_of(""), f"p{number}"))
    git_server.publish("ann/more", {"skills/a.md": "A."})
    status, told = await install(server, address(git_server, "ann/more"))
    assert (status, f"there are {MAX_PLUGINS} plugins already" in told["error"]) == (409, True)


async def test_the_operators_plugins_are_everybodys_at_the_commit_that_is_set(
    make_server: MakeServer, git_server: GitServer, tools: str
) -> None:
    commit = git("-C", str(git_server.folder / "ann-tools-work"), "rev-parse", "HEAD").strip()
    git_server.commit("ann/tools", {"skills/rule.md": "Always use spaces."})
    missing = f"{address(git_server, 'ann/none')}#{'1' * 40}"
    async with talking(make_server, 1, with_files(), plugins=(f"{tools}#{commit}", missing)) as (server, model):
        conversation_id = await server.create()
        await say(server, conversation_id, "Begin.")
        assert "Always use tabs." in known(model.last_request)
        assert any("ann/none.git: " in text for text in await errors(server, conversation_id))
        (shown,) = await listed(server)
        assert (shown["name"], shown["for_all"], shown["commit"]) == ("tools", True, commit)
        assert (await server.client.delete("/api/plugins/tools")).status_code == 404, "it is the operator's"
    git_server.close()
    async with talking(make_server, 1, with_files(), plugins=(f"{tools}#{commit}",)) as (server, model):
        await say(server, await server.create(), "Begin.")
        assert "Always use tabs." in known(model.last_request), "it is fetched once"
    async with talking(make_server, 1, with_files()) as (server, model):
        await say(server, await server.create(), "Begin.")
        assert "Always use tabs." not in known(model.last_request)
        assert len(await server.app.services.database.plugins.all(SERVER)) == 1


@pytest.mark.parametrize("required", [False, True])
async def test_a_user_switches_an_operators_plugin_off_unless_it_is_required(
    make_server: MakeServer, git_server: GitServer, tools: str, required: bool
) -> None:
    commit = git("-C", str(git_server.folder / "ann-tools-work"), "rev-parse", "HEAD").strip()
    own = {"plugins": (f"{tools}#{commit}",), "required_plugins": required}
    async with talking(make_server, 2, with_files(), **own) as (server, model):
        await say(server, await server.create(), "Begin.")
        assert "Always use tabs." in known(model.last_request)
        response = await server.client.patch("/api/plugins/tools", json={"enabled": False})
        assert (response.status_code, "setting required_plugins" in response.text) == (
            (403, True) if required else (200, False)
        )
        await store(server, disabled_plugins=["tools"])
        await say(server, await server.create(), "Begin.")
        assert ("Always use tabs." in known(model.last_request)) is required
        assert [one["enabled"] for one in await listed(server)] == [required]
        assert (await server.client.patch("/api/plugins/tools", json={"enabled": True})).status_code == 200
        assert [one["enabled"] for one in await listed(server)] == [True]
        assert (await server.client.patch("/api/plugins/none", json={"enabled": False})).status_code == 404


async def test_an_archive_is_read_when_it_is_needed_and_not_again(
    make_server: MakeServer, tools: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    real = PluginRepository.archive

    async def archive(self: PluginRepository, owner: str, name: str, commit: str) -> bytes | None:
        asked.append(name)
        return await real(self, owner, name, commit)

    monkeypatch.setattr(PluginRepository, "archive", archive)
    async with talking(make_server, 2, with_files()) as (server, model):
        await install(server, tools)
        assert [len((await listed(server))[0]["skills"]) for _ in range(3)] == [4, 4, 4]
        assert asked == ["tools"]
        await say(server, await server.create(), "Begin.")
        assert "Always use tabs." in known(model.last_request)
        assert asked == ["tools", "tools"], "its files, for the sandbox"
        await server.client.patch("/api/plugins/tools", json={"enabled": False})
        await say(server, await server.create(), "Begin.")
        assert asked == ["tools", "tools"]


async def test_whoever_waits_for_installations_of_others_is_told_in_time(
    server: Server, git_server: GitServer, tools: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.session.agents.plugins.AT_ONCE", 1)
    monkeypatch.setattr("server.session.agents.plugins.WAIT_SECONDS", 0.1)
    plugins = Plugins(server.app.services.database, server.app.services.settings, Destinations(loopback=True))
    slow = asyncio.create_task(plugins.install("ann", source_of(address(git_server, "ann/slow"), "", ""), None))
    try:
        await asyncio.to_thread(git_server.asked.wait)
        for user in ("ann", "bob"):
            with pytest.raises(plugin_fetch.PluginError, match="other plugins are being installed"):
                await plugins.install(user, source_of(tools, "", ""), None)
    finally:
        slow.cancel()
        await asyncio.wait([slow])
    assert (await plugins.install("bob", source_of(tools, "", ""), None)).stored.name == "tools"


async def test_a_conversation_does_not_wait_long_for_an_operators_plugin_nor_for_one_that_failed(
    server: Server, git_server: GitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.session.agents.plugins.PATIENCE_SECONDS", 0.1)
    source = f"{address(git_server, 'ann/slow')}#{'1' * 40}"
    settings = server.app.services.settings.model_copy(update={"plugins": (source,)})
    plugins = Plugins(server.app.services.database, settings, Destinations(loopback=True))
    plugins.start()
    try:
        (problem,) = (await plugins.of_conversation("")).problems
        assert "it is still being fetched" in str(problem)
    finally:
        await plugins.close()
    monkeypatch.setattr(plugin_fetch, "FETCH_SECONDS", 0.1)
    monkeypatch.setattr("server.session.agents.plugins.PATIENCE_SECONDS", 60)
    plugins = Plugins(server.app.services.database, settings, Destinations(loopback=True))
    try:
        (problem,) = (await plugins.of_conversation("")).problems
        assert "was not fetched within 0.1 s" in str(problem)
        monkeypatch.setattr(plugin_fetch, "FETCH_SECONDS", 60)
        monkeypatch.setattr("server.session.agents.plugins.RETRY_SECONDS", 0)
        assert (await plugins.of_conversation("")).problems == (problem,), (
            "it is asked for anew beside the conversation"
        )
    finally:
        await plugins.close()


async def test_plugins_of_former_settings_make_room_for_the_operators_present_ones(
    make_server: MakeServer, git_server: GitServer, tools: str
) -> None:
    commit = git("-C", str(git_server.folder / "ann-tools-work"), "rev-parse", "HEAD").strip()
    async with make_server() as server:
        for number in range(MAX_PLUGINS):
            old = StoredPlugin(owner=SERVER, name=f"p{number}", source="https://a.example/a.git", commit="1" * 40)
            await server.app.services.database.plugins.add(old)
    async with make_server(with_files(), plugins=(f"{tools}#{commit}",)) as server:
        assert [one.path for one in (await server.app.services.plugins.of_conversation("")).folders] == [
            f"{FOLDER}/tools"
        ]
        assert [one.name for one in await server.app.services.database.plugins.all(SERVER)] == ["tools"]


async def test_where_users_may_have_no_plugins_none_is_installed_and_none_is_used(
    make_server: MakeServer, tools: str
) -> None:
    async with make_server() as server:
        await install(server, tools)
    async with talking(make_server, 1, with_files(), user_plugins=False) as (server, model):
        status, told = await install(server, tools)
        assert (status, "setting user_plugins" in told["error"]) == (403, True)
        await say(server, await server.create(), "Begin.")
        assert "Always use tabs." not in known(model.last_request)


async def test_a_plugins_files_are_put_back_when_the_sandbox_has_started_anew(
    make_server: MakeServer, tools: str
) -> None:
    provider, written = with_files(), []
    plain = provider.handlers["file.write"]

    async def write(call: FakeRequest) -> FakeAnswer:
        written.append(str(call.args["path"]).removeprefix(f"{FOLDER}/tools/"))
        return await plain(call)

    provider.handlers["file.write"] = write
    async with make_server(provider) as server:
        await install(server, tools)
        conversation_id = await server.create()
        await server.until_running(conversation_id)
        assert set(written) >= FILES.keys()
        written.clear()
        (sandbox,) = provider.sandboxes.values()
        await sandbox.stop()
        connection = server.app.services.manager.sandbox(conversation_id)
        assert connection is not None
        with suppress(SandboxLostError):  # of what was asked before it was noticed
            await connection.request("shell.run", {"command": "true"})
        await connection.request("shell.run", {"command": "true"})
        assert set(written) >= FILES.keys()


async def test_a_conversation_that_is_restarted_has_what_is_installed_by_then(
    make_server: MakeServer, tools: str
) -> None:
    async with talking(make_server, 2, with_files()) as (server, model):
        conversation_id = await server.create()
        await say(server, conversation_id, "Begin.")
        await install(server, tools)
        await restart(server, conversation_id)
        await say(server, conversation_id, "Go on.")
        assert "Always use tabs." in known(model.last_request)


async def test_what_is_stored_of_a_plugin_and_cannot_be_read_is_told_and_stops_nothing(
    make_server: MakeServer, tools: str
) -> None:
    async with talking(make_server, 1, with_files()) as (server, model):
        await install(server, tools)
        plugins = server.app.services.database.plugins
        (made,) = await plugins.all(owner_of(""))
        whole = await plugins.archive(made.owner, made.name, made.commit)
        assert whole is not None
        for name, archive in (("cut", whole[:-200]), ("none", b""), ("other", b"x" * 100)):
            await plugins.add(replace(made, name=name, archive=archive))
        conversation_id = await server.create()
        await say(server, conversation_id, "Begin.")
        assert "Always use tabs." in known(model.last_request)
        told = [text for text in await errors(server, conversation_id) if "skills/broken.md" not in text]
        assert [name for name in ("cut", "none", "other") if any(f"plugin {name}: " in text for text in told)] == [
            "cut",
            "none",
            "other",
        ]
        shown = {one["name"]: bool(one["problems"]) for one in await listed(server)}
        assert shown == {"cut": True, "none": True, "other": True, "tools": True}
        assert (await server.client.delete("/api/plugins/none")).status_code == 200


@pytest.mark.parametrize("name", ["plugin.json", "SKILL.md"])
async def test_a_plugin_that_the_servers_disk_does_not_read_is_not_called_none(
    make_server: MakeServer, tools: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    opened = Path.open

    def read(path: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if path.name == name and "w" not in mode:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return opened(path, mode, *arguments, **options)

    async with make_server() as server:
        monkeypatch.setattr(Path, "open", read)
        status, told = await install(server, tools)
        assert (status, "Input/output error" in str(told), "is no plugin" in str(told)) == (503, True, False)
        monkeypatch.undo()
        assert (await install(server, tools))[0] == 201


async def test_an_operators_plugin_that_cannot_be_fetched_is_not_asked_for_by_each_conversation(
    make_server: MakeServer, git_server: GitServer
) -> None:
    source = address(git_server, "ann/later")
    commit = "1" * 40
    async with talking(make_server, 2, with_files(), plugins=(f"{source}#{commit}",)) as (server, _model):
        for _ in range(2):
            conversation_id = await server.create()
            await say(server, conversation_id, "Begin.")
            assert len(await errors(server, conversation_id)) == 1
        assert git_server.requests["/ann/later.git/info/refs"] == 1


async def test_a_host_without_a_public_address_is_asked_where_the_settings_allow_it(
    make_server: MakeServer, git_server: GitServer
) -> None:
    git_server.publish("ann/tools", FILES)
    source, host = f"{git_server.url}/ann/tools.git", own_address()
    async with make_server() as server:
        status, told = await install(server, source)
        assert (status, "setting plugin_hosts" in told["error"]) == (400, True), told
    async with make_server(plugin_hosts=(host,)) as server:
        assert (await install(server, source))[0] == 201
