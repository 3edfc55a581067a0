"""Tokens of git providers, and the repository of a conversation as its sandbox is asked for it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agent_core.testing.fake_sandbox import (
    FakeAnswer,
    FakeHandler,
    FakeProvider,
    FakeRequest,
    FakeRunnerError,
    command_result,
)
from tests.contract.rest.conftest import WAIT_SECONDS, MakeServer, Server, facts, kill, shell
from tests.listening import listening

TOKEN = "tok-0123456789abcdef"


async def add(server: Server, **tokens: Any) -> Any:
    return await server.post("/api/add-git-providers", json={"provider_tokens": tokens})


class Provider:
    """Says to everybody who asks whose token it is what it was told to say."""

    def __init__(self) -> None:
        self.status = 200
        self.headers: list[str] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.headers.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(f"HTTP/1.1 {self.status} X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()


async def test_tokens_are_kept_secret_and_said_to_be_there(make_server: MakeServer, tmp_path: Path) -> None:
    async with make_server(verify_git_tokens=False) as server:
        stored = await add(server, github={"token": TOKEN, "host": "git.example.com"}, gitlab={"token": "", "host": ""})
        assert (stored.status_code, stored.json()) == (200, {"message": "Git providers stored"})
        assert (await add(server, github={"token": "", "host": ""}, gitlab={"token": "g-12345678"})).status_code == 200
        settings = (await server.get("/api/settings")).json()
        assert settings["provider_tokens_set"] == {"github": "git.example.com", "gitlab": None}
        assert settings["secrets_store"] == {"provider_tokens": {}}
        assert TOKEN not in str(settings)
        await server.post("/api/settings", json={"language": "de"})
        await add(server, github={"token": "", "host": "other.example.com"})
    async with make_server(verify_git_tokens=False) as server:
        settings = (await server.get("/api/settings")).json()
        assert settings["provider_tokens_set"] == {"github": "other.example.com", "gitlab": None}
        for file in (tmp_path / "data").rglob("*"):
            assert not file.is_file() or TOKEN.encode() not in file.read_bytes(), file
        assert (await server.post("/api/unset-provider-tokens")).json() == {"message": "Unset Git provider tokens"}
        assert (await server.get("/api/settings")).json()["provider_tokens_set"] == {}


async def test_empty_tokens_alone_store_nothing(server: Server) -> None:
    empty = {"token": "", "host": ""}
    stored = await add(server, github=empty, gitlab=empty, bitbucket={"token": None})
    assert (stored.status_code, stored.json()) == (200, {"message": "Git providers stored"})
    assert (await server.post("/api/unset-provider-tokens")).status_code == 200
    assert (await server.get("/api/settings")).status_code == 404


@pytest.mark.parametrize(
    ("tokens", "status"),
    [
        ({"sourcehut": {"token": "x"}}, 422),
        ({"github": {"token": "x\ny"}}, 422),
        ({"github": {"token": "tökén-0123"}}, 422),
        ({"github": "x"}, 422),
        ({"github": None}, 422),
        ({"github": {"token": "x" * 501}}, 422),
        ({"github": {"token": 7}}, 422),
        ({"github": {"token": "x", "host": "http://ann:pw@git.example.com"}}, 422),
        ({"github": {"token": "x", "host": "file:///etc"}}, 422),
        ({"github": {"token": "x", "host": "https://"}}, 422),
        ({"github": {"token": "x", "host": "a b"}}, 422),
    ],
)
async def test_what_can_be_no_token_or_host_is_refused(server: Server, tokens: dict[str, Any], status: int) -> None:
    response = await add(server, **tokens)
    assert response.status_code == status, response.text
    assert (await server.get("/api/settings")).status_code == 404


async def test_a_token_that_its_provider_refuses_is_not_stored_and_one_that_it_cannot_judge_is(server: Server) -> None:
    provider = Provider()
    async with listening(provider.answer) as port:
        host = f"http://127.0.0.1:{port}"
        provider.status = 401
        refused = await add(server, github={"token": TOKEN, "host": host})
        assert refused.status_code == 401
        assert refused.json() == {"error": "Invalid token. Please make sure it is a valid github token."}
        assert (await server.get("/api/settings")).status_code == 404
        provider.status = 404
        assert (await add(server, gitlab={"token": TOKEN, "host": host})).status_code == 200
        provider.status = 200
        assert (await add(server, bitbucket={"token": "ann:secret-pw", "host": host})).status_code == 200
    assert [lines.splitlines()[0] for lines in provider.headers] == [
        "GET /api/v3/user HTTP/1.1",
        "GET /api/v4/user HTTP/1.1",
        "GET /2.0/user HTTP/1.1",
    ]
    assert f"Authorization: Bearer {TOKEN}" in provider.headers[0]
    assert "Authorization: Basic YW5uOnNlY3JldC1wdw==" in provider.headers[2]
    assert (await add(server, gitlab={"token": TOKEN, "host": host})).status_code == 200  # nobody is there any more


async def asked_for(
    make_server: MakeServer, body: dict[str, Any], users: dict[str, str] | None = None, **settings: Any
) -> tuple[list[FakeRequest], list[str]]:
    """What the sandbox of a conversation was asked of git, and the errors in its log."""

    async def done(call: FakeRequest) -> FakeAnswer:
        return {"cloned": True}

    handlers = {"shell.run": shell, "workspace.facts": facts, "shell.kill": kill, "git.clone": done}
    provider = FakeProvider(handlers={**handlers, "git.identity": done})
    async with make_server(provider, verify_git_tokens=False, **settings) as server:
        await add(
            server, github={"token": TOKEN}, bitbucket={"token": "ann:secret-pw", "host": "bb.example.com:8443/git"}
        )
        own = {"git_user_name": "Ann", "git_user_email": "ann@example.com"} if users is None else users
        await server.post("/api/settings", json=own)
        conversation_id = await server.create(**body)
        await server.until_running(conversation_id)
        (sandbox,) = provider.sandboxes.values()
        events = await server.events(conversation_id)
        calls = [call for call in sandbox.runner.ran if call.op in ("git.clone", "git.identity")]
    return calls, [one["content"] for one in events if one.get("observation") == "error"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            {"repository": "ann/boat", "git_provider": "github", "selected_branch": "main"},
            ("https://github.com/ann/boat.git", "boat", "main", "x-access-token", TOKEN),
        ),
        ({"repository": "ann/boat"}, ("https://github.com/ann/boat.git", "boat", "", "x-access-token", TOKEN)),
        (
            {"repository": "team/boat", "git_provider": "bitbucket"},
            ("https://bb.example.com:8443/git/team/boat.git", "boat", "", "ann", "secret-pw"),
        ),
        (
            {"repository": "a/b/boat", "git_provider": "gitlab"},
            ("http://git.internal:81/a/b/boat.git", "boat", "", "", ""),
        ),
        (
            {"repository": "https://github.com/ann/boat.git"},
            ("https://github.com/ann/boat.git", "boat", "", "x-access-token", TOKEN),
        ),
        (
            {"repository": "https://github.com.example.com/ann/boat"},
            ("https://github.com.example.com/ann/boat", "boat", "", "", ""),
        ),
    ],
)
async def test_a_repository_is_asked_for_with_what_its_provider_wants(
    make_server: MakeServer, body: dict[str, str], expected: tuple[str, ...]
) -> None:
    calls, errors = await asked_for(make_server, body, git_hosts={"gitlab": "http://git.internal:81/"})
    identity, clone = calls
    assert (identity.op, identity.args) == ("git.identity", {"name": "Ann", "email": "ann@example.com"})
    names = ("url", "folder", "branch", "username", "password")
    assert tuple(clone.args[name] for name in names) == expected
    assert errors == []


@pytest.mark.parametrize(
    ("users", "expected"),
    [
        ({}, {"name": "The Firm", "email": "git@firm.example"}),
        ({"git_user_name": "Ann"}, {"name": "Ann", "email": "git@firm.example"}),
        ({"git_user_name": " ", "git_user_email": "ann@example.com"}, {"name": "The Firm", "email": "ann@example.com"}),
    ],
)
async def test_the_servers_name_stands_on_commits_of_users_who_gave_none(
    make_server: MakeServer, users: dict[str, str], expected: dict[str, str]
) -> None:
    settings = {"git_user_name": "The  Firm", "git_user_email": "git@firm.example"}
    calls, _ = await asked_for(make_server, {}, users, **settings)
    assert [(call.op, call.args) for call in calls] == [("git.identity", expected)]


async def test_without_a_way_out_of_the_sandbox_nothing_is_tried_and_the_reason_said(make_server: MakeServer) -> None:
    calls, errors = await asked_for(make_server, {"repository": "ann/boat"}, sandbox_network="none")
    assert [call.op for call in calls] == ["git.identity"]
    (error,) = errors
    assert "the server's sandbox_network 'none'" in error


@pytest.mark.parametrize("cut", ["before", "after"])
async def test_a_repositorys_setup_script_runs_once_also_where_its_server_ends_around_it(
    make_server: MakeServer, cut: str
) -> None:
    disk: dict[str, Any] = {}
    sourced: list[str] = []
    reached, is_cut = asyncio.Event(), True

    async def clone(call: FakeRequest) -> FakeAnswer:
        if disk:
            return {"cloned": False, "mark": disk["mark"]}
        disk.update(mark=call.args["mark"])
        return {"cloned": True}

    async def run(call: FakeRequest) -> FakeAnswer:
        command = str(call.args["command"])
        if command == "rm -f -- .git/drydock-set-up":
            disk["mark"] = None
        elif "source .openhands/setup.sh" in command:
            sourced.append(command)
            result: Any = command_result("")
            return {**result, "shell_ended": True, "notice": "It has ended."}  # by an exit 0 of its own
        elif cut == "after" and is_cut:
            reached.set()
            await asyncio.Event().wait()  # it comes to the end of the script, and no further
        return command_result("")

    async def read(call: FakeRequest) -> FakeAnswer:
        if not str(call.args["path"]).endswith((".git/HEAD", "setup.sh")):
            raise FakeRunnerError("not_found", "it is not there")
        if cut == "before" and is_cut:
            reached.set()
            await asyncio.Event().wait()
        return {"path": call.args["path"], "size": 1, "offset": 0, "eof": True}, b"x"

    handlers: dict[str, FakeHandler] = {"git.clone": clone, "shell.run": run, "file.read": read}
    provider = FakeProvider(handlers={**handlers, "workspace.facts": facts, "shell.kill": kill})
    async with make_server(provider, verify_git_tokens=False) as server:
        conversation_id = await server.create(repository="ann/boat", git_provider="github")
        async with asyncio.timeout(WAIT_SECONDS):
            await reached.wait()
        assert len(sourced) == (1 if cut == "after" else 0)
    is_cut = False
    for _ in range(2):
        async with make_server(provider, verify_git_tokens=False) as server:
            assert (await server.post(f"/api/conversations/{conversation_id}/start", json={})).status_code == 200
            await server.until_running(conversation_id)
            events = await server.events(conversation_id)
        assert disk == {"mark": None}
    assert len(sourced) == 1
    assert len([one for one in events if one.get("action") == "run"]) == 1
    assert [one["extras"]["metadata"]["exit_code"] for one in events if one.get("observation") == "run"] == [0]
    assert [one for one in events if one.get("observation") == "error"] == []
