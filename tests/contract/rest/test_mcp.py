"""MCP servers of users, conversations and the whole server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import call, finish
from server.db.repositories.conversations import ConversationRecord
from server.settings.mcp_config import HIDDEN, McpConfig, agent_servers
from tests.contract.rest.conftest import MakeServer, Server
from tests.unit.mcp.conftest import fake


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine programs take long to start; what is tested here is what they do then."""
    monkeypatch.setattr("agent_core.mcp.servers.FIRST_STEP_SECONDS", 60.0)


THREE_EMPTY_LISTS: dict[str, list[Any]] = {"sse_servers": [], "stdio_servers": [], "shttp_servers": []}


def program(name: str, *tools: str, **options: Any) -> dict[str, Any]:
    return {"name": name, "env": {"API_KEY": "key-of-the-server"}, **fake(*tools, **options)}


def with_programs(*programs: dict[str, Any]) -> dict[str, Any]:
    return {**THREE_EMPTY_LISTS, "stdio_servers": list(programs)}


async def observed(server: Server, conversation_id: str, kind: str) -> dict[str, Any]:
    """The first observation of this kind, once it is there; the libraries for models and servers load meanwhile."""
    async with asyncio.timeout(60):
        while True:
            events = await server.events(conversation_id)
            if seen := [event for event in events if event.get("observation") == kind]:
                return seen[0]
            await asyncio.sleep(0.05)


async def test_the_servers_of_a_user_serve_their_conversations(make_server: MakeServer) -> None:
    async with (
        ModelServer([call("environment", {}), finish("Done.")]) as model,
        make_server(generate_titles=False) as server,
    ):
        settings = {"llm_model": "openai/scripted", "llm_base_url": model.url, "llm_api_key": "key"}
        servers = with_programs(program("mine", "environment"), program("broken", exit=1))
        stored = await server.post("/api/settings", json={**settings, "mcp_config": servers})
        assert stored.status_code == 200
        found = (await server.get("/api/settings")).json()["mcp_config"]
        assert found["stdio_servers"][0]["env"] == {"API_KEY": HIDDEN}
        conversation_id = await server.create(initial_user_msg="Look around.")
        result = await observed(server, conversation_id, "mcp")
        assert result["extras"] == {"name": "environment", "arguments": {}}
        content = json.loads(result["content"])
        assert content["isError"] is False
        assert '"API_KEY": "<secret_hidden>"' in content["content"][0]["text"]
        events = await server.events(conversation_id)
        (action,) = [event for event in events if event.get("action") == "call_tool_mcp"]
        assert action["args"] == {"name": "environment", "arguments": {}, "thought": "", "security_risk": -1}
        error = await observed(server, conversation_id, "error")
        assert error["content"].startswith("MCP server 'broken': it cannot be used: it ended")


async def test_the_servers_of_a_conversation_replace_those_of_its_user_and_are_kept_encrypted(
    make_server: MakeServer,
) -> None:
    async with (
        ModelServer([call("echo", {"text": "mine"}), finish("Done.")]) as model,
        make_server(generate_titles=False) as server,
    ):
        settings = {"llm_model": "openai/scripted", "llm_base_url": model.url, "llm_api_key": "key"}
        await server.post("/api/settings", json={**settings, "mcp_config": with_programs(program("u", "count"))})
        own = with_programs(program("own", "echo"))
        conversation_id = await server.create(initial_user_msg="Say it.", mcp_config=own)
        await observed(server, conversation_id, "mcp")
        offered = [tool["function"]["name"] for tool in model.requests[0].json["tools"]]
        assert "echo" in offered
        assert "count" not in offered
        record: ConversationRecord | None = await server.app.services.database.conversations.get(conversation_id)
        assert record is not None
        assert "key-of-the-server" not in json.dumps(dict(record.options))
        assert "own" not in json.dumps(dict(record.options))


@pytest.mark.parametrize(
    "config",
    [
        {"stdio_servers": [{"name": "a b", "command": "c"}]},
        {"stdio_servers": [{"name": "a", "command": "c d"}]},
        {"shttp_servers": [{"url": "http://x", "timeout": 0}]},
        {"sse_servers": ["ftp://x"]},
        {"more_servers": []},
    ],
)
async def test_servers_of_the_wrong_shape_are_a_422(server: Server, config: dict[str, Any]) -> None:
    for path in ("/api/settings", "/api/conversations"):
        assert (await server.post(path, json={"mcp_config": config})).status_code == 422


async def test_the_space_around_an_address_is_cut_off_and_its_scheme_may_be_in_capitals(server: Server) -> None:
    config = {"sse_servers": [" HTTPS://example.com/sse\n"]}
    assert (await server.post("/api/settings", json={"mcp_config": config})).status_code == 200
    shown = (await server.get("/api/settings")).json()["mcp_config"]
    assert shown["sse_servers"] == [{"url": "HTTPS://example.com/sse", "api_key": None}]


async def test_the_servers_of_the_whole_server_come_first_and_without_their_secrets(make_server: MakeServer) -> None:
    own = {
        "sse_servers": [{"url": "http://127.0.0.1:1/sse", "api_key": "of-the-operator"}],
        "stdio_servers": [program("ours", "echo")],
    }
    async with make_server(mcp_config=own) as server:
        mine = {"sse_servers": ["http://127.0.0.1:1/sse", "http://127.0.0.1:1/mine"]}
        await server.post("/api/settings", json={"mcp_config": mine})
        answer = await server.get("/api/settings")
        assert "of-the-operator" not in answer.text
        assert "key-of-the-server" not in answer.text
        found = answer.json()["mcp_config"]
        assert [one["url"] for one in found["sse_servers"]] == ["http://127.0.0.1:1/sse", "http://127.0.0.1:1/mine"]
        assert [one["name"] for one in found["stdio_servers"]] == ["ours"]
        await server.post("/api/settings", json={"mcp_config": found})
        again = (await server.get("/api/settings")).json()["mcp_config"]
        assert again == found, "a client that sends back what it got changes nothing"
        merged = agent_servers(McpConfig.model_validate(own), McpConfig.model_validate(found)).servers
        assert merged["http://127.0.0.1:1/sse"].auth.token == "of-the-operator"


async def test_programs_of_users_can_be_refused_and_the_servers_own_are_not(make_server: MakeServer) -> None:
    own = with_programs(program("ours", "echo"))
    async with (
        ModelServer([call("echo", {"text": "hello"}), finish("Done.")]) as model,
        make_server(mcp_config=own, mcp_programs="never", generate_titles=False) as server,
    ):
        settings = {"llm_model": "openai/scripted", "llm_base_url": model.url, "llm_api_key": "key"}
        await server.post("/api/settings", json={**settings, "mcp_config": with_programs(program("mine", "count"))})
        conversation_id = await server.create(initial_user_msg="Say it.")
        await observed(server, conversation_id, "mcp")
        error = await observed(server, conversation_id, "error")
        assert error["content"].startswith("MCP server 'mine': it cannot be used: it is a program, and this server")
        assert "count" not in [tool["function"]["name"] for tool in model.requests[0].json["tools"]]


async def test_references_in_a_users_servers_are_to_their_own_secrets(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_SERVER", "never-to-be-seen")
    async with (
        ModelServer([call("environment", {}), finish("Done.")]) as model,
        make_server(generate_titles=False) as server,
    ):
        secret = {"name": "SHOP_KEY", "value": "value-of-the-shop"}
        assert (await server.post("/api/secrets", json=secret)).status_code == 201
        mine = {
            **program("mine", "environment"),
            "env": {"GIVEN": "for ${SHOP_KEY}", "OTHER": "${OF_THE_SERVER:-none}"},
        }
        settings = {"llm_model": "openai/scripted", "llm_base_url": model.url, "llm_api_key": "key"}
        stored = await server.post("/api/settings", json={**settings, "mcp_config": with_programs(mine)})
        assert stored.status_code == 200
        conversation_id = await server.create(initial_user_msg="Look around.")
        result = json.loads((await observed(server, conversation_id, "mcp"))["content"])["content"][0]["text"]
        assert '"GIVEN": "for <secret_hidden>"' in result
        assert '"OTHER": "none"' in result


async def test_stored_servers_are_encrypted(make_server: MakeServer, tmp_path: Path) -> None:
    async with make_server(generate_titles=False) as server:
        await server.post("/api/settings", json={"mcp_config": with_programs(program("mine"))})
        rows = await server.app.services.database.engines.fetch("SELECT document FROM settings")
        assert "key-of-the-server" not in str(rows)


def test_the_three_lists_become_servers_with_names() -> None:
    config = McpConfig.model_validate(
        {
            "sse_servers": ["http://a/sse", {"url": "http://ann:pw@b/sse?key=1", "api_key": "k-1234"}],
            "stdio_servers": [{"name": "p", "command": "uvx", "args": ["x"], "env": {"A": "1"}}],
            "shttp_servers": [{"url": "http://a/sse", "timeout": 5}, "ws://c/mcp"],
        }
    )
    found = agent_servers(None, config)
    assert {name: (one.kind, one.url) for name, one in found.servers.items()} == {
        "p": ("stdio", None),
        "http://a/sse": ("sse", "http://a/sse"),
        "http://b/sse": ("sse", "http://ann:pw@b/sse?key=1"),
        "http://a/sse (2)": ("http", "http://a/sse"),
        "ws://c/mcp": ("http", "ws://c/mcp"),
    }
    assert found.servers["http://b/sse"].auth.token == "k-1234"
    assert (found.servers["http://a/sse (2)"].timeout, found.servers["ws://c/mcp"].timeout) == (5, 60)
    assert found.rules.environment == {}
