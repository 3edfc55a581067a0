"""The server's own MCP server for agents, with the protocol's official client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import AsyncMock

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from server.auth.identity import Identity, OneTokenAuthenticator
from server.db.repositories.conversations import ConversationRecord
from tests.contract.rest.conftest import MakeServer, Server
from tests.contract.rest.played.github import PlayedGitHub
from tests.contract.rest.played.world import TOKEN
from tests.contract.rest.test_git_accounts import store
from tests.contract.rest.test_provider_tools import arguments

URL = "http://127.0.0.1:3000/mcp/mcp"
HEADER = "X-OpenHands-ServerConversation-ID"
NAMES = ["create_pr", "create_mr", "create_bitbucket_pr", "create_azure_devops_pr", "create_forgejo_pr"]
PARAMETERS = {
    "create_pr": (["repo_name", "source_branch", "target_branch", "title", "body"], ["draft", "labels"]),
    "create_mr": (["id", "source_branch", "target_branch", "title", "description"], ["labels"]),
    "create_bitbucket_pr": (["repo_name", "source_branch", "target_branch", "title", "description"], []),
    "create_azure_devops_pr": (["repo_name", "source_branch", "target_branch", "title", "description"], []),
    "create_forgejo_pr": (["repo_name", "source_branch", "target_branch", "title", "body"], ["draft", "labels"]),
}


@asynccontextmanager
async def connected(server: Server, *, mode: str = "legacy", **headers: str) -> AsyncIterator[Client]:
    """The official client of the door."""
    http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=server.app), headers=headers, timeout=30)
    async with http, Client(streamable_http_client(URL, http_client=http), mode=mode, cache=None) as client:
        yield client


def text_of(result: Any) -> str:
    (block,) = result.content
    return str(block.text)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_tools_and_their_parameters_are_those_of_the_protocol(mode: str, server: Server) -> None:
    async with connected(server, mode=mode) as client:
        listed = (await client.list_tools()).tools
        assert [tool.name for tool in listed] == NAMES
        for tool in listed:
            required, optional = PARAMETERS[tool.name]
            assert sorted(tool.input_schema["required"]) == sorted(required), tool.name
            assert set(tool.input_schema["properties"]) == {*required, *optional}, tool.name
            assert tool.description
            assert tool.annotations is not None
            assert tool.annotations.read_only_hint is False
        by_name = {tool.name: tool.input_schema["properties"] for tool in listed}
        assert by_name["create_pr"]["draft"] == {"default": True, "type": "boolean"}
        assert {one["type"] for one in by_name["create_mr"]["id"]["anyOf"]} == {"string", "integer"}


async def test_a_request_is_made_and_noted_at_the_conversation_that_the_header_names(make_server: MakeServer) -> None:
    async with PlayedGitHub() as provider, make_server() as server:
        await store(server, github=provider)
        await server.app.services.database.conversations.create(ConversationRecord(id="mine", pr_number=(7,)))
        async with connected(server, **{HEADER: "mine"}) as client:
            result = await client.call_tool("create_pr", arguments("github"))
            assert result.is_error is False
            url = f"{provider.origin}/ann/boat/pull/41"
            assert text_of(result) == url
            assert result.structured_content == {"number": 41, "url": url, "note": ""}
        assert (await server.info("mine"))["pr_number"] == [7, 41]
        async with connected(server) as client:
            assert (await client.call_tool("create_pr", arguments("github"))).is_error is False
        assert len(provider.made) == 2
        assert (await server.info("mine"))["pr_number"] == [7, 41], "a call that names none is noted nowhere"


async def test_a_conversation_of_somebody_else_and_one_that_is_none_are_refused_alike(make_server: MakeServer) -> None:
    async with PlayedGitHub() as provider, make_server() as server:
        await store(server, github=provider)
        await server.app.services.database.conversations.create(ConversationRecord(id="theirs", user_id="bob"))
        for ident in ("theirs", "nothing"):
            async with connected(server, **{HEADER: ident}) as client:
                result = await client.call_tool("create_pr", arguments("github"))
                assert result.is_error is True
                assert text_of(result) == f"Conversation {ident} not found"
        async with connected(server, **{HEADER: "../x"}) as client:
            result = await client.call_tool("create_pr", arguments("github"))
            assert "Conversation ID contains invalid path characters" in text_of(result)
        assert provider.made == []


async def test_each_user_has_the_accounts_of_their_own(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with PlayedGitHub() as provider, make_server() as server:
        await store(server, github=provider)
        bob = AsyncMock(return_value=Identity("bob"))
        monkeypatch.setattr(OneTokenAuthenticator, "identify", bob)
        async with connected(server) as client:
            result = await client.call_tool("create_pr", arguments("github"))
            assert result.is_error is True
            assert text_of(result).startswith("Git provider token required.")
        assert provider.made == []


async def test_without_the_servers_token_nobody_gets_in(make_server: MakeServer) -> None:
    async with make_server(token="a-token-of-quite-some-length") as server:
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        headers = {"Accept": "application/json, text/event-stream"}
        for given in ({}, {"X-Session-API-Key": "wrong"}, {"Authorization": "Bearer wrong"}):
            for path in ("/mcp/mcp", "/mcp/mcp/"):
                response = await server.post(path, json=message, headers={**headers, **given})
                assert response.status_code == 401, path
        foreign = {"Origin": "https://evil.example.com", "X-Session-API-Key": "a-token-of-quite-some-length"}
        assert (await server.post("/mcp/mcp", json=message, headers={**headers, **foreign})).status_code == 403
        for right in (
            {"X-Session-API-Key": "a-token-of-quite-some-length"},
            {"Authorization": "Bearer a-token-of-quite-some-length"},
        ):
            async with connected(server, **right) as client:
                assert len((await client.list_tools()).tools) == len(NAMES)


async def test_bad_arguments_and_refusals_are_results_that_the_model_can_read(make_server: MakeServer) -> None:
    async with PlayedGitHub() as provider, make_server() as server:
        await store(server, github=provider)
        async with connected(server) as client:
            result = await client.call_tool("create_pr", {"repo_name": "ann/boat", "title": 7, "colour": "red"})
            assert result.is_error is True
            for says in ("source_branch: Field required", "title: Input should be a valid string", "colour: Extra"):
                assert says in text_of(result)
            result = await client.call_tool("create_pr", arguments("github", title="a\0b", body="c\0"))
            for says in ("title: Value error, has a NUL character; leave it out", "body: Value error, has a NUL"):
                assert says in text_of(result)
            assert provider.made == []
            result = await client.call_tool("create_pr", arguments("github", source_branch="nothing"))
            assert (result.is_error, text_of(result)) == (
                True,
                "github answers 422: Validation Failed; head: invalid",
            )
            with pytest.raises(MCPError, match="there is no tool 'create_everything'; there are: create_pr"):
                await client.call_tool("create_everything", {})
        assert TOKEN not in json.dumps(provider.made)


async def test_each_request_stands_for_itself_and_is_answered_with_json(server: Server) -> None:
    headers = {"Accept": "application/json, text/event-stream"}
    message = {"jsonrpc": "2.0", "id": 5, "method": "tools/list"}
    response = await server.post("/mcp/mcp", json=message, headers=headers)
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert "mcp-session-id" not in response.headers
    assert response.json()["id"] == 5
    assert [tool["name"] for tool in response.json()["result"]["tools"]] == NAMES
    for bad in (b"{", b"\xff\xfe", b"[]", b'{"jsonrpc":"2.0","id":1}', b'{"jsonrpc":"2.0","id":1,"method":"a\\u0000"}'):
        response = await server.post("/mcp/mcp", content=bad, headers={**headers, "Content-Type": "application/json"})
        assert 400 <= response.status_code < 500 or "error" in response.json(), bad
    for method in ("GET", "DELETE", "PUT"):
        response = await server.client.request(method, "/mcp/mcp", headers=headers)
        assert (response.status_code, response.headers["allow"]) == (405, "POST"), method
    many = await asyncio.gather(*(server.post("/mcp/mcp", json=message, headers=headers) for _ in range(20)))
    assert {one.status_code for one in many} == {200}


async def test_a_server_that_nobody_has_come_to_by_this_door_ends_at_once(make_server: MakeServer) -> None:
    async with make_server() as server:
        assert (await server.get("/mcp/other")).status_code in {200, 404}, "the page's"
    names = {task.get_name() for task in asyncio.all_tasks()}
    assert not any(name.startswith("mcp-door") for name in names), names
