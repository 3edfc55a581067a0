"""The ways to models that are not just any OpenAI-compatible server: OpenAI itself, and other protocols."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import pytest
from pydantic import SecretStr

from agent_core.errors import LLMAuthenticationError, LLMError, LLMModelNotFoundError, LLMRateLimitError
from agent_core.events.messages import Message, MessageToolCall, TextContent
from agent_core.llm.llm import LLM
from agent_core.llm.transport.exchange import CallContext
from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import Turn, call, fail, say

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "terminal",
            "description": "Run it.",
            "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
        },
    }
]
HELLO = [{"role": "user", "content": "Hello"}]


async def test_openai_itself_gets_the_options_of_its_model_family(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ModelServer([call("terminal", {"command": "ls"})]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        options: dict[str, Any] = {"max_output_tokens": 500, "temperature": 0.3, "reasoning_effort": "low"}
        llm = LLM(model="openai/gpt-5", api_key=SecretStr("sk-x"), api_mode="chat", **options)
        response = await llm.acompletion(HELLO, TOOLS, context=CallContext(prompt_cache_key="c1"))
        body = server.last_request.json
    assert body["model"] == "gpt-5"
    assert body["max_completion_tokens"] == 500
    assert body["reasoning_effort"] == "low"
    assert body["prompt_cache_key"] == "c1"
    assert body["prompt_cache_retention"] == "24h"
    assert body["tools"] == TOOLS
    assert body["stream_options"] == {"include_usage": True}
    assert "temperature" not in body
    assert "max_tokens" not in body
    assert [one.name for one in response.message.tool_calls or ()] == ["terminal"]
    assert response.cost is not None
    assert response.cost > 0


async def test_a_model_of_openai_is_known_without_its_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ModelServer([say("Hello.")]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        llm = LLM(model="gpt-5", api_key=SecretStr("sk-x"), num_retries=1, api_mode="chat", max_output_tokens=500)
        await llm.acompletion(HELLO)
        assert (server.last_request.model, server.last_request.json["max_completion_tokens"]) == ("gpt-5", 500)
    assert LLM(model="gpt-5").uses_responses_api()


async def test_openai_without_a_key_is_refused_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(LLMAuthenticationError, match="no API key for model openai/gpt-4o"):
        await LLM(model="openai/gpt-4o").acompletion(HELLO)


async def test_a_name_without_provider_and_url_says_what_is_missing() -> None:
    with pytest.raises(LLMModelNotFoundError, match="write provider/model, or set a base URL"):
        await LLM(model="my-own-model", num_retries=1).acompletion(HELLO)


def anthropic_stream(*, cut: bool = False) -> Turn:
    events: list[dict[str, Any]] = [
        {
            "type": "message_start",
            "message": {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "content": [],
                "model": "claude-sonnet-4-5",
                "stop_reason": None,
                "usage": {"input_tokens": 10, "cache_read_input_tokens": 90, "output_tokens": 1},
            },
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Let me look."}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "tool_use", "id": "toolu_1", "name": "terminal", "input": {}},
        },
        {
            "type": "content_block_delta",
            "index": 1,
            "delta": {"type": "input_json_delta", "partial_json": '{"command": "ls"}'},
        },
        {"type": "content_block_stop", "index": 1},
    ]
    if not cut:
        events += [
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 20}},
            {"type": "message_stop"},
        ]
    text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    return Turn(body=text, content_type="text/event-stream")


def gemini_stream(*parts: dict[str, Any], cut: bool = False) -> Turn:
    pieces = [{"candidates": [{"content": {"role": "model", "parts": [part]}, "index": 0}]} for part in parts]
    if not cut:
        pieces[-1]["candidates"][0]["finishReason"] = "STOP"
    text = "".join(f"data: {json.dumps(piece)}\n\n" for piece in pieces)
    return Turn(body=text, content_type="text/event-stream")


def gemini(server: ModelServer) -> LLM:
    options: dict[str, Any] = {"num_retries": 1, "litellm_extra_body": {"metadata": {"team": "a"}}}
    return LLM(model="gemini/gemini-2.5-flash", base_url=server.origin, api_key=SecretStr("key-of-gemini"), **options)


async def test_gemini_answers_with_text_and_calls_and_gets_what_is_configured() -> None:
    calls = {"functionCall": {"name": "terminal", "args": {"command": "ls"}}}
    async with ModelServer([gemini_stream({"text": "Let me "}, {"text": "look."}, calls)]) as server:
        response = await gemini(server).acompletion(HELLO, TOOLS, context=CallContext(session_id="c1"))
        body = server.last_request.json
    assert response.message.text == "Let me look."
    assert [(one.name, json.loads(one.arguments)) for one in response.message.tool_calls or ()] == [
        ("terminal", {"command": "ls"})
    ]
    assert server.last_request.headers["x-goog-api-key"] == "key-of-gemini"
    assert (body["metadata"]["session_id"], body["metadata"]["team"]) == ("c1", "a")
    assert body["tools"][0]["function_declarations"][0]["name"] == "terminal"


async def test_an_answer_of_gemini_that_breaks_off_is_no_answer() -> None:
    async with ModelServer([gemini_stream({"text": "Let me "}, cut=True)]) as server:
        with pytest.raises(LLMError, match="cut its answer off"):
            await gemini(server).acompletion(HELLO, TOOLS)


def claude(server: ModelServer, **options: Any) -> LLM:
    return LLM(
        model="anthropic/claude-sonnet-4-5",
        base_url=server.origin,
        api_key=SecretStr("sk-ant"),
        retry_min_wait=0,
        retry_max_wait=0,
        **options,
    )


def one_round_without_thoughts() -> list[Message]:
    return [
        Message(role="assistant", tool_calls=[MessageToolCall(id="a", name="terminal", arguments="{}")]),
        Message(role="tool", content=[TextContent(text="/work")], tool_call_id="a", name="terminal"),
    ]


async def test_whether_a_request_may_be_mended_is_a_wish_of_each_model_at_the_same_time() -> None:
    async with ModelServer([anthropic_stream()] * 4) as server:
        history = [Message.user("What is here?"), *one_round_without_thoughts()]
        models = [claude(server, modify_params=wish) for wish in (True, False, True, False)]
        answers = [llm.acompletion([llm.render(message) for message in history], TOOLS) for llm in models]
        await asyncio.gather(*answers)
        assert sorted("thinking" in request.json for request in server.requests) == [False, False, True, True]


async def test_another_protocol_is_spoken_through_the_client_library() -> None:
    async with ModelServer([anthropic_stream()]) as server:
        llm = claude(server)
        messages = [
            Message(
                role="system", content=[TextContent(text="Static.", cache_prompt=True), TextContent(text="Today.")]
            ),
            Message.user("What is here?"),
            *one_round_without_thoughts(),
        ]
        wire = [llm.render(message) for message in messages]
        before = json.dumps(wire)
        response = await llm.acompletion(wire, TOOLS)
        body = server.last_request.json
        assert server.last_request.headers["x-api-key"] == "sk-ant"
    assert "thinking" not in body, "the call of the history has no thoughts, and the provider would miss them"
    assert json.dumps(wire) == before
    assert [("cache_control" in part) for part in body["system"]] == [True, False]
    assert "cache_control" in json.dumps(body["messages"][-1])
    assert "cache_control" not in json.dumps(body["messages"][:-1])
    assert response.message.text == "Let me look."
    assert [(one.id, one.name, one.arguments) for one in response.message.tool_calls or ()] == [
        ("toolu_1", "terminal", '{"command": "ls"}')
    ]
    assert response.usage.prompt_tokens == 100
    assert response.usage.cache_read_tokens == 90
    assert response.usage.completion_tokens == 20
    assert response.usage.context_window >= 200_000
    assert response.cost is not None
    assert response.cost == pytest.approx(10 * 3e-06 + 90 * 3e-07 + 20 * 1.5e-05)


async def test_a_model_that_thinks_by_a_number_of_tokens_is_told_it() -> None:
    async with ModelServer([anthropic_stream()]) as server:
        await claude(server, temperature=0.5).acompletion([Message.user("What is here?")], TOOLS)
        body, headers = server.last_request.json, server.last_request.headers
    assert "interleaved-thinking-2025-05-14" in headers["anthropic-beta"]
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 16_383}
    assert body["max_tokens"] == 16_384
    assert "temperature" not in body


async def test_errors_of_another_protocol_are_the_same_errors() -> None:
    refused = {"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key sk-ant"}}
    limited = {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}
    async with ModelServer(
        [
            Turn(status=401, body=json.dumps(refused)),
            Turn(status=429, body=json.dumps(limited), headers={"retry-after": "0.05"}),
            anthropic_stream(cut=True),
            anthropic_stream(),
        ]
    ) as server:
        llm = claude(server)
        with pytest.raises(LLMAuthenticationError) as caught:
            await llm.acompletion(HELLO, TOOLS)
        assert "sk-ant" not in str(caught.value)
        notices: list[tuple[type[LLMError], float]] = []
        response = await llm.acompletion(
            HELLO, TOOLS, on_retry=lambda notice: notices.append((type(notice.error), notice.wait_seconds))
        )
    assert notices[0] == (LLMRateLimitError, 0.05)
    assert len(notices) == 2
    assert response.message.text == "Let me look."


async def test_the_client_library_sends_each_request_once() -> None:
    async with ModelServer(lambda _: fail(500, "oops")) as server:
        with pytest.raises(LLMError):
            await claude(server, num_retries=1).acompletion(HELLO, TOOLS)
        assert server.request_count == 1
    async with ModelServer(lambda _: say("ok")) as server:
        await LLM(model="openai/x", base_url=server.url).acompletion(HELLO)
        assert server.request_count == 1


async def test_what_a_providers_first_call_needs_is_imported_beforehand() -> None:
    await LLM(model="anthropic/claude-sonnet-4-5", api_key=SecretStr("k")).warm_up()
    assert {"litellm.responses.mcp.chat_completions_handler", "openai.resources.chat"} <= sys.modules.keys()
