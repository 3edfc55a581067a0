"""Configuration of MCP servers: what is taken, what is refused, what is never shown."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from agent_core import Agent
from agent_core.agent.base import AgentBase
from agent_core.agent.codeact import CodeActAgent
from agent_core.events.masking import EXPOSE_SECRETS
from agent_core.llm.llm import LLM
from agent_core.mcp.client import headers_of
from agent_core.mcp.config import McpServer, McpServerMap, expanded, names_in
from agent_core.mcp.servers import servers_with_skills
from agent_core.skills.skill import KeywordTrigger, Skill

HTTP = {"url": "https://host/mcp"}


@pytest.mark.parametrize(
    ("server", "kind"),
    [
        ({"command": "uvx", "args": ["x"]}, "stdio"),
        (HTTP, "http"),
        ({**HTTP, "transport": "shttp"}, "http"),
        ({**HTTP, "transport": "streamable-http"}, "http"),
        ({**HTTP, "type": "http"}, "http"),
        ({**HTTP, "transport": "sse"}, "sse"),
        ({"url": "https://${HOST}/mcp"}, "http"),
        ({**HTTP, "auth": None, "keep_alive": None, "description": "d", "icon": "i"}, "http"),
    ],
)
def test_servers_are_programs_or_addresses(server: dict[str, Any], kind: str) -> None:
    assert McpServer.model_validate(server).kind == kind


@pytest.mark.parametrize(
    ("server", "problem"),
    [
        ({}, "give either command"),
        ({**HTTP, "command": "x"}, "give either command"),
        ({**HTTP, "transport": "stdio"}, "stdio needs command"),
        ({"command": "x", "transport": "sse"}, "sse needs url"),
        ({"url": "ftp://host"}, "complete http or https address"),
        ({"url": "https://"}, "complete http or https address"),
        ({**HTTP, "transport": "carrier pigeon"}, "transport"),
        ({**HTTP, "timeout": 0}, "timeout"),
        ({**HTTP, "headers": {"a b": "c"}}, "no name of a header"),
        ({**HTTP, "headers": {"a": "b\r\nc: d"}}, "one line"),
        ({**HTTP, "auth": {"type": "oauth2", "client_secret": "s"}}, "client_id: must be given beside client_secret"),
        ({**HTTP, "auth": {"type": "bearer"}}, "token: must be given"),
        ({**HTTP, "auth": "magic"}, "auth"),
        ({**HTTP, "colour": "red"}, "colour"),
    ],
)
def test_what_cannot_be_meant_is_refused(server: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        McpServer.model_validate(server)


def test_the_map_of_servers_may_stand_under_its_usual_key() -> None:
    adapter = TypeAdapter[dict[str, McpServer]](McpServerMap)
    assert adapter.validate_python({"mcpServers": {"a": HTTP}}) == adapter.validate_python({"a": HTTP})
    assert adapter.validate_python(None) == {}
    for wrong in ([HTTP], {"": HTTP}, {"mcpServers": {}, "a": HTTP}):
        with pytest.raises(ValidationError):
            adapter.validate_python(wrong)


@pytest.mark.parametrize(
    ("auth", "headers"),
    [
        ("none", {}),
        ({"type": "api_key", "key": "k-1234"}, {"X-API-Key": "k-1234"}),
        ({"type": "api_key", "key": "k-1234", "header": "Key"}, {"Key": "k-1234"}),
        ({"type": "bearer", "token": "t-1234"}, {"Authorization": "Bearer t-1234"}),
        ({"type": "basic", "username": "ann", "password": "pass"}, {"Authorization": "Basic YW5uOnBhc3M="}),
        ({"type": "header", "name": "X-Who", "value": "ann-1"}, {"X-Who": "ann-1"}),
    ],
)
def test_each_kind_of_authentication_has_its_header(auth: Any, headers: dict[str, str]) -> None:
    server = McpServer.model_validate({**HTTP, "headers": {"X-More": "1"}, "auth": auth})
    assert headers_of(server) == {"X-More": "1", **headers}


def test_secrets_of_a_server_are_hidden_and_its_harmless_values_are_not() -> None:
    server = McpServer.model_validate(
        {
            **HTTP,
            "headers": {"Authorization": "Bearer abcdef", "X-Mode": "fast", "X-Token": "${TOKEN}"},
            "auth": {"type": "api_key", "key": "k-1234"},
        }
    )
    assert sorted(server.secrets) == ["Bearer abcdef", "abcdef", "k-1234"]
    assert "abcdef" not in repr(server)
    assert "k-1234" not in repr(server)
    written = server.model_dump(mode="json")
    assert written["headers"] == {"Authorization": "**********", "X-Mode": "fast", "X-Token": "${TOKEN}"}
    assert written["auth"]["key"] == "**********"
    again = McpServer.model_validate(written)
    assert headers_of(again) == {"X-Mode": "fast", "X-Token": "${TOKEN}"}, "a mask is no value"
    assert McpServer.model_validate(server.model_dump()) == server
    shown = server.model_dump(mode="json", context={EXPOSE_SECRETS: True})
    assert McpServer.model_validate(shown) == server


def test_references_are_replaced_at_any_depth_and_only_once() -> None:
    value = {"a": ["$X", {"b": "${X}-${Y:-z}"}], "n": 1, "$X": "${X"}
    assert names_in(value) == {"X", "Y"}
    assert expanded(value, {"X": "$Y"}) == {"a": ["$Y", {"b": "$Y-z"}], "n": 1, "$X": "${X"}
    assert expanded("${E:-d} $E", {"E": ""}) == "d "


def test_an_agent_with_servers_can_be_made_again_from_its_data() -> None:
    agent = Agent(llm=LLM(), mcp_config={"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}}})
    assert agent.mcp_config["time"].args == ["mcp-server-time"]
    assert AgentBase.revive(agent.model_dump()).mcp_config == agent.mcp_config
    assert AgentBase.revive(agent.model_dump(mode="json")).mcp_config == agent.mcp_config
    assert agent.supports_openhands_mcp
    assert not CodeActAgent(llm=LLM(), enable_mcp=False).supports_openhands_mcp
    with pytest.raises(ValidationError, match="give either command"):
        Agent(llm=LLM(), mcp_config={"time": {}})


def skill(name: str, mcp_tools: dict[str, Any], **more: Any) -> Skill:
    return Skill(name=name, content="Text.", mcp_tools=mcp_tools, **more)


def test_skills_that_somebody_has_chosen_bring_servers_and_the_agents_own_win() -> None:
    own = {"a": McpServer.model_validate(HTTP)}
    program = {"command": "x"}
    found, unusable = servers_with_skills(
        own,
        [
            skill("one", {"mcpServers": {"a": program, "b": program}}),
            skill("two", {"stdio_servers": [{"name": "c", **program}, {"name": "b", "command": "y"}]}),
            skill("three", {"d": program}, trigger=KeywordTrigger(keywords=["d"]), level="user"),
            skill("public", {"p": program}, level="public"),
            skill("theirs", {"o": program}, level="organization"),
            skill("four", {"sse_servers": [HTTP]}),
            skill("five", {"e": {"url": "nowhere"}}),
        ],
    )
    assert {name: server.command for name, server in found.items()} == {"a": None, "b": "x", "c": "x", "d": "x"}
    refused = {name: reason for name, reason in unusable.items() if name in "po"}
    assert [name for name, reason in refused.items() if "may not start programs" in reason] == ["p", "o"]
    assert {name: reason for name, reason in unusable.items() if name not in refused} == {
        "of skill four": "mcp_tools of the skill cannot be used: stdio_servers must be given: in this form a skill can"
        " bring no other servers",
        "of skill five": "mcp_tools of the skill cannot be used: e.url: must be a complete http or https address, for"
        " example https://host/mcp",
    }


def test_the_library_for_servers_is_not_loaded_before_a_conversation_needs_it() -> None:
    code = "import sys, server.app; print({'mcp', 'httpx2', 'jsonschema'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "set()"


def test_a_server_has_half_a_minute_to_connect_and_five_to_answer_unless_it_says_otherwise() -> None:
    usual, own = McpServer(url="https://host/mcp"), McpServer(url="https://host/mcp", timeout=7)
    assert (usual.connect_seconds, usual.call_seconds) == (30.0, 300.0)
    assert (own.connect_seconds, own.call_seconds) == (7.0, 7.0)
    assert usual.enabled
    assert usual.keep_alive
