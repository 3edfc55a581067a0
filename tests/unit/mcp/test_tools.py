"""Tools of MCP servers as the agent has them: their schema, their arguments, their results."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from mcp.types import CallToolResult
from mcp.types import ImageContent as ImageBlock

from agent_core.agent.tool_calls import parse_call
from agent_core.errors import ToolError
from agent_core.events.messages import ImageContent, MessageToolCall
from agent_core.events.risk import SecurityRisk
from agent_core.mcp.servers import McpServers
from agent_core.mcp.tool import (
    MAX_TEXT_CHARS,
    MCPToolAction,
    MCPToolObservation,
    observation_of,
    parameters_from,
    problems_of,
)
from tests.unit.mcp.conftest import call, fake, running, servers, tool


def one(*tools: str) -> McpServers:
    return servers(one=fake(*tools))


async def test_a_tool_is_shown_with_its_servers_schema_and_our_two_arguments_first() -> None:
    async with running(one("echo", "count")) as found:
        shown = tool(found, "echo").to_openai_tool(add_security_risk_prediction=True)["function"]
        assert shown["description"] == "Says it again."
        assert list(shown["parameters"]["properties"]) == ["security_risk", "summary", "text"]
        assert shown["parameters"]["required"] == ["text"]
        reading = tool(found, "count").to_openai_tool(add_security_risk_prediction=True)["function"]
        assert list(reading["parameters"]["properties"]) == ["summary", "n"], "it only reads"
        assert reading["parameters"]["additionalProperties"] is False


async def test_a_name_that_providers_do_not_take_is_changed_for_the_model_only() -> None:
    async with running(one("odd.name/here")) as found:
        assert [each.name for each in found.tools()] == ["odd_name_here"]
        assert (await call(found, "odd_name_here")).text.endswith("odd")


async def test_a_call_is_parsed_like_any_other() -> None:
    async with running(one("echo")) as found:
        tools = {each.name: each for each in found.tools()}
        arguments = {"text": "hi", "security_risk": "HIGH", "summary": "Greets."}
        parsed = parse_call(MessageToolCall(id="1", name="echo", arguments=json.dumps(arguments)), tools)
        assert parsed.action == MCPToolAction(data={"text": "hi"})
        assert (parsed.security_risk, parsed.summary) == (SecurityRisk.HIGH, "Greets.")


async def test_arguments_that_the_tool_declares_itself_reach_it_whatever_they_are_called() -> None:
    async with running(one("own")) as found:
        tools = {each.name: each for each in found.tools()}
        arguments = {"summary": "mine", "security_risk": "harmless"}
        parsed = parse_call(MessageToolCall(id="1", name="own", arguments=json.dumps(arguments)), tools)
        assert parsed.action == MCPToolAction(data=arguments)
        assert parsed.security_risk is SecurityRisk.UNKNOWN
        shown = tools["own"].to_openai_tool(add_security_risk_prediction=True)["function"]["parameters"]["properties"]
        assert shown["security_risk"] == {"type": "string"}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "arguments: ['n'] must be given"),
        ({"n": "many"}, 'n: must be of type "integer"'),
        ({"n": [1]}, 'n: must be of type "integer"'),
        ({"n": True}, 'n: must be of type "integer"'),
        ({"n": 1, "m": 2}, "arguments: there is an argument that the tool does not know; it knows ['n']"),
    ],
)
async def test_wrong_arguments_are_told_to_the_model_before_the_server_is_asked(
    arguments: dict[str, Any], problem: str
) -> None:
    async with running(one("count")) as found:
        with pytest.raises(ToolError, match=r"must|know") as raised:
            tool(found, "count").action_from_arguments(arguments)
        assert str(raised.value) == problem
        tools = {each.name: each for each in found.tools()}
        parsed = parse_call(MessageToolCall(id="1", name="count", arguments=json.dumps(arguments)), tools)
        assert parsed.action is None
        assert parsed.error.startswith("Error validating the call of tool 'count'")
        assert "many" not in parsed.error, "values are not repeated"


async def test_numbers_that_a_model_wrote_as_text_are_read() -> None:
    async with running(one("count")) as found:
        assert tool(found, "count").action_from_arguments({"n": " 3 "}) == MCPToolAction(data={"n": 3})


@pytest.mark.parametrize(
    ("content", "said", "shown"),
    [
        (b"\xff\xd8\xff\xe0 the rest", "image/png", "image/jpeg"),
        (b"\x89PNG\r\n\x1a\n the rest", "image/webp", "image/png"),
        (b"GIF89a the rest", "image/png", "image/gif"),
        (b"of some other kind", "image/webp", "image/webp"),
    ],
)
def test_an_image_has_the_type_that_it_has_and_not_the_one_that_is_said(content: bytes, said: str, shown: str) -> None:
    data = base64.b64encode(content).decode()
    block = ImageBlock(type="image", data=data, mime_type=said)
    seen = observation_of("draw", {}, CallToolResult(content=[block]))
    assert ImageContent(image_urls=[f"data:{shown};base64,{data}"]) in seen.content


async def test_texts_and_images_of_a_result_are_kept_and_the_rest_is_named() -> None:
    async with running(one("picture")) as found:
        seen = await call(found, "picture")
        assert seen.text.splitlines() == [
            "[Tool 'picture' executed.]",
            "Look:",
            "[An image was left out: it is not valid base64.]",
            "[Audio of type audio/wav was left out: it cannot be shown here.]",
            "[Resource notes: file:///notes]",
            "[Resource file:///a]",
            "inside",
        ]
        (image,) = [part for part in seen.content if isinstance(part, ImageContent)]
        assert image.image_urls[0].startswith("data:image/png;base64,iVBOR")
        assert seen.to_result()["content"][-1]["mimeType"] == "image/png"


async def test_a_huge_result_keeps_its_beginning_and_its_end() -> None:
    async with running(one("huge")) as found:
        seen = await call(found, "huge", n=2_000_000)
        text = seen.content[1]
        assert text.type == "text"
        assert len(text.text) == MAX_TEXT_CHARS
        assert text.text.startswith("beginxxx")
        assert text.text.endswith("xxxend")
        assert "characters were left out here" in text.text


async def test_an_error_of_the_server_is_a_result_that_says_so() -> None:
    async with running(one("refuse")) as found:
        seen = await call(found, "refuse")
        assert seen.is_error
        assert seen.text.endswith("The MCP server 'one' did not do it: it answered with an error: not today")


@pytest.mark.parametrize(
    ("lends", "expected"),
    [(True, "t0ken t0ken default $HOST_SECRET $5"), (False, "$TOKEN ${TOKEN} ${NONE:-default} $HOST_SECRET $5")],
)
async def test_secrets_named_in_arguments_reach_a_server_that_is_lent_some_and_nothing_else_does(
    monkeypatch: pytest.MonkeyPatch, lends: bool, expected: str
) -> None:
    monkeypatch.setenv("HOST_SECRET", "of the host")

    class Context:
        hard_timeout = None
        emit_output = print

        async def secrets_for(self, command: str) -> dict[str, str]:
            known = {"TOKEN": "t0ken", "TOKEN_2": "other"}
            return {name: value for name, value in known.items() if name in command}

    async with running(servers(one=fake("echo", server_lends_secrets=lends))) as found:
        echo = tool(found, "echo")
        text = "$TOKEN ${TOKEN} ${NONE:-default} $HOST_SECRET $5"
        action = echo.action_from_arguments({"text": text})
        seen = await echo.acall(action, Context())  # type: ignore[arg-type] # all that it asks
        assert isinstance(seen, MCPToolObservation)
        assert seen.text.endswith(expected)
        assert seen.arguments == {"text": text}, "what is stored names the secret only"


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "string"}, "not an object"),
        ({"type": "object", "properties": []}, None),
        ({"type": "object", "properties": ["x"]}, "properties"),
        ({"type": "object", "properties": {"x": {"type": 5}}}, "no valid JSON schema"),
        ({"type": "object", "description": "x" * 300_000}, "characters"),
        ({}, None),
    ],
)
def test_a_schema_is_used_as_it_is_or_refused(schema: dict[str, Any], problem: str | None) -> None:
    if problem is None:
        assert parameters_from(schema)["properties"] == {}
        return
    with pytest.raises(ValueError, match=problem):
        parameters_from(schema)


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        ({"properties": {"a": {"pattern": "^(a|aa)+$"}}}, {"a": "a" * 60 + "!"}),
        ({"properties": {"a": {"items": {"pattern": "^(a|aa)+$"}}}}, {"a": ["a" * 60 + "!"] * 5000}),
        ({"patternProperties": {"^(a|aa)+$": {"type": "string"}}}, {"a" * 60 + "!": 1}),
        ({"patternProperties": {"^(a|aa)+$": {}}, "additionalProperties": False}, {"a" * 60 + "!": 1}),
        (
            {
                "$defs": {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(60)}
                | {"d60": {"type": "string"}},
                "properties": {"a": {"$ref": "#/$defs/d0"}},
            },
            {"a": 1},
        ),
    ],
)
def test_a_servers_schema_holds_nothing_up(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    assert problems_of(parameters_from(schema), arguments) == []


def test_what_cannot_be_judged_here_is_left_to_the_server() -> None:
    elsewhere = parameters_from({"properties": {"a": {"$ref": "https://example.com/schema"}}})
    assert problems_of(elsewhere, {"a": 1}) == []
    dialect = parameters_from({"properties": {"a": {"pattern": "(?<name>"}, "b": {"type": "integer"}}})
    assert problems_of(dialect, {"a": "x"}) == []
    secret = parameters_from({"properties": {"a": {"type": "string", "pattern": "^ghp_", "maxLength": 3}}})
    assert problems_of(secret, {"a": "$TOKEN"}) == []
    assert problems_of(secret, {"a": "TOKEN"}) != []
    inside = parameters_from({"$defs": {"d": {"enum": [1, 2]}}, "properties": {"a": {"$ref": "#/$defs/d"}}})
    assert problems_of(inside, {"a": 3}) == ["a: must be one of [1, 2]"]
