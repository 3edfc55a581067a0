"""Names and schemas that a provider refuses do not reach it, and what it calls is what the tool is called."""

from __future__ import annotations

import json
from typing import Any

from pydantic import SecretStr

from agent_core.events.messages import Message
from agent_core.llm.llm import LLM
from agent_core.llm.router import RandomRouter
from agent_core.llm.tool_schemas import safe_key, safe_name
from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import call, say

NAME, KEY = "odata.query", "$filter"
SCHEMA = {"type": "object", "properties": {KEY: {"anyOf": [{"type": "string"}, {"type": "null"}]}}, "required": [KEY]}
TOOLS = [{"type": "function", "function": {"name": NAME, "description": "Asks.", "parameters": SCHEMA}}]


def model(server: ModelServer, name: str, **options: Any) -> LLM:
    own = {"model": f"litellm_proxy/{name}", "base_url": server.url, "api_key": SecretStr("sk-of-the-test")}
    return LLM.model_validate({**own, "num_retries": 1, **options})


async def test_a_call_of_a_tool_with_a_name_that_is_refused_comes_back_and_is_told_again() -> None:
    for name, key in (("gemini-2.5-pro", KEY), ("claude-sonnet-4-5", safe_key(KEY))):
        async with ModelServer([call(safe_name(NAME), {key: "a eq 1"}), say("Done.")]) as server:
            llm = model(server, name)
            asked = Message.user("How many?")
            answer = (await llm.acompletion([asked], TOOLS)).message
            (made,) = answer.tool_calls or []
            assert (made.name, json.loads(made.arguments)) == (NAME, {KEY: "a eq 1"})
            told = Message(role="tool", content=[], tool_call_id=made.id, name=NAME)
            choice = {"type": "function", "function": {"name": NAME}}
            await llm.acompletion([asked, answer, told], TOOLS, tool_choice=choice)
            body = server.last_request.json
        assert [tool["function"]["name"] for tool in body["tools"]] == [safe_name(NAME)]
        assert list(body["tools"][0]["function"]["parameters"]["properties"]) == [key]
        (past,) = body["messages"][1]["tool_calls"]
        assert (past["function"]["name"], json.loads(past["function"]["arguments"])) == (
            safe_name(NAME),
            {key: "a eq 1"},
        )
        assert body["tool_choice"]["function"]["name"] == safe_name(NAME)


async def test_gemini_behind_a_compatible_server_gets_no_union_with_null() -> None:
    async with ModelServer([say("ok")]) as server:
        await model(server, "gemini-2.5-pro").acompletion([Message.user("Hello")], TOOLS)
        (tool,) = server.last_request.json["tools"]
    assert tool["function"]["parameters"]["properties"][KEY] == {"type": "string", "nullable": True}


async def test_a_router_tells_each_of_its_models_the_names_that_it_takes() -> None:
    async with ModelServer([call(safe_name(NAME), {safe_key(KEY): "x"}), say("Done.")]) as server:
        router = RandomRouter(llms_for_routing={"one": model(server, "claude-sonnet-4-5")})
        answer = (await router.acompletion([Message.user("How many?")], TOOLS)).message
        assert json.loads((answer.tool_calls or [])[0].arguments) == {KEY: "x"}
        await router.acompletion([Message.user("How many?"), answer], TOOLS)
        (past,) = server.last_request.json["messages"][1]["tool_calls"]
    assert past["function"]["arguments"] == json.dumps({safe_key(KEY): "x"})


async def test_calls_that_are_written_as_text_come_back_by_the_tools_own_names_too() -> None:
    text = f"<function={safe_name(NAME)}>\n<parameter={KEY}>a eq 1</parameter>\n</function>"
    async with ModelServer([say(text)]) as server:
        llm = model(server, "small", native_tool_calling=False)
        (made,) = (await llm.acompletion([Message.user("How many?")], TOOLS)).message.tool_calls or []
    assert (made.name, json.loads(made.arguments)) == (NAME, {KEY: "a eq 1"})
