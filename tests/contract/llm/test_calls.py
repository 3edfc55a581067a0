"""Calls over real HTTP: requests as servers expect them, answers whole and streamed."""

from __future__ import annotations

import asyncio
import gc
import json
import weakref
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import SecretStr

from agent_core.events.messages import ImageContent, Message, TextContent
from agent_core.events.transient import TextDelta, TextDiscarded
from agent_core.llm.llm import LLM
from agent_core.llm.transport.connections import load_http
from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import Call, Turn, call, calls, raw, say

TOOLS = [{"type": "function", "function": {"name": "terminal", "parameters": {"type": "object", "properties": {}}}}]


def model(server: ModelServer, **options: Any) -> LLM:
    return LLM(
        **{
            "model": "openai/scripted",
            "base_url": server.url,
            "api_key": SecretStr("sk-of-the-test"),
            "retry_min_wait": 0,
            "retry_max_wait": 0,
            "timeout": 5,
            **options,
        }
    )


def asked(llm: LLM, *messages: Message) -> Sequence[dict[str, Any]]:
    return [llm.render(message) for message in messages or (Message.user("Hello"),)]


async def test_an_answer_carries_text_usage_latency_and_the_id_of_its_deltas() -> None:
    heard: list[TextDelta | TextDiscarded] = []
    usage = {
        "prompt_tokens": 120,
        "completion_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 100},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    async with ModelServer([say("Good morning to you", usage=usage)]) as server:
        llm = model(server)
        response = await llm.acompletion(asked(llm), on_delta=heard.append)
    assert response.message == Message.assistant("Good morning to you")
    assert "".join(delta.text for delta in heard if isinstance(delta, TextDelta)) == "Good morning to you"
    assert {delta.response_id for delta in heard} == {response.id}
    assert response.usage.prompt_tokens == 120
    assert response.usage.completion_tokens == 7
    assert response.usage.cache_read_tokens == 100
    assert response.usage.reasoning_tokens == 3
    assert response.usage.per_turn_token == 127
    assert response.usage.response_id == response.id
    assert response.finish_reason == "stop"
    assert response.latency > 0
    assert response.cost is None


async def test_the_request_is_what_an_openai_compatible_server_expects() -> None:
    async with ModelServer([say("ok")]) as server:
        llm = model(
            server,
            temperature=0.5,
            max_output_tokens=99,
            extra_headers={"X-Team": "blue"},
            litellm_extra_body={"min_p": 0.1},
        )
        await llm.acompletion(asked(llm), TOOLS)
        request = server.last_request
    assert request.path == "/v1/chat/completions"
    assert request.api_key == "sk-of-the-test"
    assert request.headers["x-team"] == "blue"
    assert request.json == {
        "model": "scripted",
        "messages": [{"role": "user", "content": "Hello"}],
        "tools": TOOLS,
        "temperature": 0.5,
        "max_tokens": 99,
        "stream": True,
        "stream_options": {"include_usage": True},
        "min_p": 0.1,
    }


async def test_without_a_key_none_is_sent() -> None:
    async with ModelServer([say("ok")]) as server:
        llm = model(server, api_key=None)
        await llm.acompletion(asked(llm))
        assert "authorization" not in server.last_request.headers


async def test_tool_calls_arrive_whole_and_in_order() -> None:
    several = (Call("terminal", {"command": "ls"}, id="a"), Call("terminal", {"command": "pwd"}, id="b"))
    async with ModelServer([calls(*several, text="Both at once.", argument_pieces=3)]) as server:
        llm = model(server)
        response = await llm.acompletion(asked(llm), TOOLS)
    assert response.message.text == "Both at once."
    made = response.message.tool_calls or []
    assert [(one.id, one.name, json.loads(one.arguments)) for one in made] == [
        ("a", "terminal", {"command": "ls"}),
        ("b", "terminal", {"command": "pwd"}),
    ]
    assert response.finish_reason == "tool_calls"


async def test_a_megabyte_of_arguments_arrives_whole() -> None:
    text = "0123456789abcde\n" * 65536
    async with ModelServer([call("file_editor", {"file_text": text}, argument_pieces=700)]) as server:
        llm = model(server)
        response = await llm.acompletion(asked(llm), TOOLS)
    (made,) = response.message.tool_calls or []
    assert json.loads(made.arguments) == {"file_text": text}


async def test_a_hundred_calls_in_one_answer_arrive() -> None:
    several = tuple(Call("terminal", {"command": f"echo {number}"}) for number in range(100))
    async with ModelServer([calls(*several)]) as server:
        llm = model(server)
        response = await llm.acompletion(asked(llm), TOOLS)
    made = response.message.tool_calls or []
    assert [json.loads(one.arguments)["command"] for one in made] == [f"echo {number}" for number in range(100)]
    assert len({one.id for one in made}) == 100


async def test_a_hundred_calls_at_the_same_time_succeed() -> None:
    async with ModelServer(lambda request: say(f"to {request.messages[0]['content']}", delay=0.05)) as server:
        llm = model(server)
        answers = await asyncio.gather(
            *(llm.acompletion(asked(llm, Message.user(str(number)))) for number in range(100))
        )
    assert [answer.message.text for answer in answers] == [f"to {number}" for number in range(100)]


async def test_a_prompt_of_megabytes_arrives_whole_and_says_how_long_it_is() -> None:
    long = "x" * 3_000_000
    async with ModelServer([say("ok")]) as server:
        llm = model(server)
        await llm.acompletion(asked(llm, Message.user(long)))
        request = server.last_request
    assert request.messages == [{"role": "user", "content": long}]
    assert int(request.headers["content-length"]) > 3_000_000
    assert "transfer-encoding" not in request.headers


async def test_connections_are_used_again() -> None:
    async with ModelServer(lambda _: say("ok")) as server:
        llm = model(server)
        for _ in range(5):
            await llm.acompletion(asked(llm))
            assert server.connection_count == 1


def test_a_loop_that_ends_closes_its_connections_and_is_forgotten() -> None:
    async def ask() -> weakref.ref[asyncio.AbstractEventLoop]:
        async with ModelServer([say("ok")]) as server:
            llm = model(server)
            await llm.acompletion(asked(llm))
        return weakref.ref(asyncio.get_running_loop())

    asyncio.run(load_http())  # the loop of the first import stays: it is among what garbage collection then passes over
    loop = asyncio.run(ask())
    gc.collect()
    assert loop() is None, "an open connection would hold it"


async def test_a_kept_connection_that_the_server_closed_costs_no_retry_wait() -> None:
    async with ModelServer([say("one"), Turn(fault="reset"), say("two")]) as server:
        llm = model(server, retry_min_wait=60, retry_max_wait=60)
        await llm.acompletion(asked(llm))
        response = await llm.acompletion(asked(llm))
    assert response.message.text == "two"


async def test_reasoning_is_kept_apart_from_the_text() -> None:
    heard: list[TextDelta | TextDiscarded] = []
    async with ModelServer([say("42", reasoning="Six times seven is")]) as server:
        llm = model(server)
        response = await llm.acompletion(asked(llm), on_delta=heard.append)
    assert response.message.reasoning_content == "Six times seven is"
    assert response.message.text == "42"
    channels = {delta.channel for delta in heard if isinstance(delta, TextDelta)}
    assert channels == {"reasoning", "message"}


async def test_signed_thoughts_that_a_proxy_passes_on_are_kept_and_given_back_unchanged() -> None:
    pieces: list[list[Any]] = [
        [{"type": "thinking", "thinking": "Hm, ", "signature": None}],
        [{"type": "thinking", "thinking": "yes."}, "junk", {"type": "thinking", "thinking": 5}],
        [{"type": "thinking", "thinking": "", "signature": "signed"}],
        [{"type": "redacted_thinking", "data": "sealed"}],
    ]
    chunks = [{"choices": [{"index": 0, "delta": {"thinking_blocks": blocks}}]} for blocks in pieces]
    end = {"choices": [{"index": 0, "delta": {"content": "So be it."}, "finish_reason": "stop"}]}
    thoughts = [
        {"type": "thinking", "thinking": "Hm, yes.", "signature": "signed"},
        {"type": "redacted_thinking", "data": "sealed"},
    ]
    async with ModelServer([raw(*chunks, end, "data: [DONE]\n\n"), say("x")]) as server:
        llm = model(server, model="openai/claude-sonnet-4-5")
        response = await llm.acompletion(asked(llm))
        assert response.message.thinking_blocks == thoughts
        await llm.acompletion(asked(llm, Message.user("Hello"), response.message, Message.user("Go on")))
        assert server.last_request.messages[1]["thinking_blocks"] == thoughts


async def test_comments_and_foreign_fields_of_the_stream_are_passed_over() -> None:
    async with ModelServer(
        [
            raw(
                ": keep-alive\n\n",
                "event: message\nid: 7\n",
                {"choices": [{"index": 0, "delta": {"content": "still"}}]},
                ": keep-alive\n\n",
                {"choices": [{"index": 0, "delta": {"content": " here"}, "finish_reason": "stop"}]},
            )
        ]
    ) as server:
        llm = model(server)
        response = await llm.acompletion(asked(llm))
    assert response.message.text == "still here"


async def test_a_line_separator_inside_a_text_does_not_break_the_stream() -> None:
    text = "one\u2028two\x85three\x0cfour"
    chunk = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": "stop"}]}
    async with ModelServer([raw(f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n")]) as server:
        llm = model(server)
        response = await llm.acompletion(asked(llm))
    assert response.message.text == text


async def test_a_server_that_does_not_stream_is_understood() -> None:
    message = {"role": "assistant", "content": "All at once."}
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": {"prompt_tokens": 5}}
    async with ModelServer([Turn(body=json.dumps(body))]) as server:
        llm = model(server)
        response = await llm.acompletion(asked(llm))
    assert response.message.text == "All at once."
    assert response.usage.prompt_tokens == 5


async def test_tokens_are_estimated_when_the_server_counts_none() -> None:
    async with ModelServer([say("x" * 40, usage=None)]) as server:
        llm = model(server)
        response = await llm.acompletion(asked(llm, Message.user("y" * 80)))
    assert (response.usage.prompt_tokens, response.usage.completion_tokens) == (20, 10)


async def test_own_prices_and_the_providers_own_cost_are_used() -> None:
    usage = {"prompt_tokens": 1000, "completion_tokens": 100}
    async with ModelServer(
        [
            say("a", usage=usage),
            say("b", usage=usage, headers={"x-litellm-response-cost": "0.25"}),
            say("c", usage={**usage, "cost": 0.5}),
        ]
    ) as server:
        llm = model(server, input_cost_per_token=0.001, output_cost_per_token=0.01)
        costs = [(await llm.acompletion(asked(llm))).cost for _ in range(3)]
    assert costs == [2.0, 0.25, 0.5]


async def test_the_messages_of_the_caller_stay_as_they_are() -> None:
    messages = [
        Message(role="system", content=[TextContent(text="Be brief.", cache_prompt=True)]),
        Message(
            role="tool",
            content=[TextContent(text="seen"), ImageContent(image_urls=["data:image/png;base64,AAAA"])],
            tool_call_id="a",
            name="browser",
        ),
        Message.user("And now?"),
    ]
    async with ModelServer(lambda _: say("ok")) as server:
        llm = model(server, model="openai/claude-like")
        wire = asked(llm, *messages)
        before = json.dumps(wire)
        await llm.acompletion(wire, TOOLS)
        assert json.dumps(wire) == before
        sent = server.last_request.messages
    assert [message["role"] for message in sent] == ["system", "tool", "user", "user"]
    assert sent[0]["content"][0]["cache_control"] == {"type": "ephemeral"}
    assert sent[3]["content"][-1]["cache_control"] == {"type": "ephemeral"}


async def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://proxy.invalid:9")
    async with ModelServer(lambda _: say("ok")) as server:
        response = await model(server, num_retries=1).acompletion([{"role": "user", "content": "Hello"}])
    assert response.message.text == "ok"


async def test_half_characters_do_not_break_a_request() -> None:
    async with ModelServer([say("ok")]) as server:
        llm = model(server)
        await llm.acompletion(asked(llm, Message.user("broken \ud83d here")))
        assert server.last_request.messages[0]["content"] == "broken ? here"


async def test_an_ollama_model_is_asked_at_its_openai_compatible_address() -> None:
    async with ModelServer([say("ok")]) as server:
        llm = model(server, model="ollama/qwen3:8b", base_url=server.origin, api_key=None)
        response = await llm.acompletion(asked(llm))
        assert server.last_request.path == "/v1/chat/completions"
        assert server.last_request.model == "qwen3:8b"
    assert response.cost is None
