"""The Responses API over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from agent_core.errors import LLMBadRequestError, LLMInternalError, LLMNoResponseError, LLMRateLimitError
from agent_core.events.messages import ImageContent, Message, MessageToolCall, TextContent
from agent_core.events.transient import TextDelta, TextDiscarded
from agent_core.llm.llm import LLM
from agent_core.llm.transport.exchange import CallContext
from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import Call, Turn, call, calls, fail, raw, say

TOOL = {
    "type": "function",
    "function": {"name": "terminal", "description": "Run it.", "parameters": {"type": "object", "properties": {}}},
}


def model(server: ModelServer, **options: Any) -> LLM:
    own = {"model": "openai/scripted", "base_url": server.url, "api_key": SecretStr("k"), "api_mode": "responses"}
    return LLM.model_validate({**own, "num_retries": 1, "timeout": 5, **options})


def text(role: str, said: str) -> Message:
    return Message.model_validate({"role": role, "content": [{"type": "text", "text": said}]})


async def test_an_answer_carries_text_reasoning_calls_and_usage() -> None:
    heard: list[TextDelta | TextDiscarded] = []
    usage = {
        "input_tokens": 120,
        "output_tokens": 7,
        "input_tokens_details": {"cached_tokens": 100},
        "output_tokens_details": {"reasoning_tokens": 3},
    }
    turn = calls(
        Call("terminal", {"command": "ls"}), Call("terminal", {"command": "pwd"}), text="I look now", reasoning="Hm.",
        usage=usage, argument_pieces=4,
    )  # fmt: skip
    async with ModelServer([turn]) as server:
        llm = model(server)
        response = await llm.acompletion([llm.render(text("user", "Go"))], [TOOL], on_delta=heard.append)
    assert server.last_request.path == "/v1/responses"
    message = response.message
    assert message.text == "I look now"
    assert message.reasoning_content == "Hm."
    assert [one.arguments for one in message.tool_calls or ()] == ['{"command": "ls"}', '{"command": "pwd"}']
    assert all(
        one.origin == "responses" and str(one.responses_item_id).startswith("fc_") for one in message.tool_calls or ()
    )
    assert message.thinking_blocks[0]["encrypted_content"].startswith("sealed-")
    assert response.finish_reason == "tool_calls"
    counted = response.usage
    assert (counted.prompt_tokens, counted.completion_tokens) == (120, 7)
    assert (counted.cache_read_tokens, counted.reasoning_tokens, counted.per_turn_token) == (100, 3, 127)
    said = [one.text for one in heard if isinstance(one, TextDelta) and one.channel != "reasoning"]
    assert "".join(said) == "I look now"


async def test_the_request_has_instructions_items_and_asks_to_store_nothing() -> None:
    image = ImageContent(image_urls=["data:image/png;base64,AA=="])
    history = [
        text("system", "You help."),
        Message(role="user", content=[TextContent(text="See"), image]),
        Message(
            role="assistant",
            content=[TextContent(text="I look.")],
            tool_calls=[
                MessageToolCall(id="c1", name="terminal", arguments="{}", origin="responses", responses_item_id="fc_1"),
                MessageToolCall(id="c2", name="terminal", arguments="{}"),
            ],
            thinking_blocks=[
                {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"},
                {"type": "reasoning", "id": "rs_2", "summary": []},
                {"type": "thinking", "thinking": "of another model", "signature": "s"},
            ],
        ),
        Message(role="tool", content=[TextContent(text="one"), image], tool_call_id="c1", name="terminal"),
        Message(role="tool", content=[TextContent(text="two")], tool_call_id="c2", name="terminal"),
    ]
    async with ModelServer([say("ok")]) as server:
        llm = model(server, reasoning_effort="low", reasoning_summary="auto", max_output_tokens=900, temperature=0.5)
        assert llm.features.sampling is None, "so it is not told a temperature while it is told how long to think"
        wire = [llm.render(message) for message in history]
        await llm.acompletion(wire, [TOOL], context=CallContext(prompt_cache_key="conv"))
    body = server.last_request.json
    shown = {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "auto"}
    assert body["input"] == [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "See"}, shown]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "I look.", "annotations": []}],
        },
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "terminal", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "terminal", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "one"},
        {"type": "function_call_output", "call_id": "c2", "output": "two"},
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "Image of the result of c1:"}, shown],
        },
    ]
    del body["input"]
    assert body == {
        "model": "scripted",
        "instructions": "You help.",
        "tools": [{"type": "function", "strict": False, **TOOL["function"]}],  # type: ignore[dict-item] # plain JSON
        "tool_choice": "auto",
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "low", "summary": "auto"},
        "max_output_tokens": 900,
        "prompt_cache_key": "conv",
        "stream": True,
    }


async def test_the_limit_of_the_answer_may_be_given_by_either_name() -> None:
    async with ModelServer([say("ok"), say("ok")]) as server:
        llm = model(server, max_output_tokens=900)
        await llm.acompletion([llm.render(Message.user("Go"))], max_tokens=70)
        await llm.acompletion([llm.render(Message.user("Go"))], max_completion_tokens=70)
        assert [request.json["max_output_tokens"] for request in server.requests] == [70, 70]


async def test_an_answer_goes_back_into_the_next_request_as_it_came() -> None:
    async with ModelServer([call("terminal", {"command": "ls"}, reasoning="Hm."), say("done")]) as server:
        llm = model(server)
        first = await llm.acompletion([llm.render(text("user", "Go"))], [TOOL])
        assert first.message.tool_calls is not None
        (made,) = first.message.tool_calls
        result = Message(role="tool", content=[TextContent(text="out")], tool_call_id=made.id, name="terminal")
        history = [text("user", "Go"), first.message, result]
        await llm.acompletion([llm.render(message) for message in history], [TOOL])
    _, reasoning, asked, given = server.last_request.json["input"]
    assert reasoning == first.message.thinking_blocks[0]
    assert (asked["id"], asked["call_id"]) == (made.responses_item_id, made.id)
    assert given == {"type": "function_call_output", "call_id": made.id, "output": "out"}


async def test_another_api_gets_neither_items_nor_their_reasoning() -> None:
    async with ModelServer([call("terminal", {}, reasoning="Hm."), say("done")]) as server:
        llm = model(server)
        first = await llm.acompletion([llm.render(text("user", "Go"))], [TOOL])
        chat = model(server, api_mode="chat", capability_overrides={"send_reasoning_content": False})
        await chat.acompletion(chat.adapted([llm.render(first.message)]), [TOOL])
        assert chat.render(first.message) == server.last_request.messages[0]
    (sent,) = server.last_request.messages
    assert set(sent) == {"role", "tool_calls"}
    assert set(sent["tool_calls"][0]) == {"id", "type", "function"}


async def test_an_answer_that_ends_at_its_limit_says_so() -> None:
    async with ModelServer([say("half of", finish_reason="length")]) as server:
        llm = model(server)
        response = await llm.acompletion([llm.render(text("user", "Go"))])
    assert response.finish_reason == "length"
    assert response.message.text == "half of"


async def test_a_server_that_does_not_stream_is_understood() -> None:
    body = (
        '{"object": "response", "status": "completed", "error": null, "output": ['
        '{"type": "message", "content": [{"type": "output_text", "text": "whole"}]},'
        '{"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "terminal", "arguments": "{}"}],'
        ' "usage": {"input_tokens": 5, "output_tokens": 2}}'
    )
    async with ModelServer([Turn(body=body)]) as server:
        llm = model(server)
        response = await llm.acompletion([llm.render(text("user", "Go"))], [TOOL])
    assert response.message.text == "whole"
    assert [one.id for one in response.message.tool_calls or ()] == ["c1"]
    assert response.usage.prompt_tokens == 5


@pytest.mark.parametrize(
    ("turn", "kind"),
    [
        (fail(429, "slow down"), LLMRateLimitError),
        (say("cut").then("cut"), LLMInternalError),
        (raw({"type": "response.failed", "response": {"error": {"code": "server_error"}}}), LLMInternalError),
        (raw({"type": "error", "code": "rate_limit_exceeded", "message": "slow down"}), LLMRateLimitError),
        (raw({"type": "response.completed", "response": {"status": "completed", "output": []}}), LLMNoResponseError),
    ],
)
async def test_failures_are_those_of_the_other_api(turn: Turn, kind: type[Exception]) -> None:
    async with ModelServer([turn]) as server:
        llm = model(server)
        with pytest.raises(kind):
            await llm.acompletion([llm.render(text("user", "Go"))])


@pytest.mark.parametrize(
    ("options", "is_used"),
    [
        ({"model": "openai/gpt-5"}, True),
        ({"model": "openai/gpt-5.1-codex-mini"}, True),
        ({"model": "openai/codex-mini-latest"}, True),
        ({"model": "openai/gpt-4o"}, False),
        ({"model": "openai/gpt-5", "api_mode": "chat"}, False),
        ({"model": "openai/gpt-5", "base_url": "http://h/v1"}, False),
        ({"model": "openai/x", "base_url": "http://h/v1", "api_mode": "responses"}, True),
        ({"model": "anthropic/claude-sonnet-4-5"}, False),
    ],
)
def test_the_api_is_chosen_by_model_and_setting(options: dict[str, Any], is_used: bool) -> None:
    assert LLM.model_validate(options).uses_responses_api() is is_used


async def test_a_provider_with_a_protocol_of_its_own_has_no_responses_api() -> None:
    llm = LLM(model="anthropic/claude-sonnet-4-5", api_key=SecretStr("k"), api_mode="responses", num_retries=1)
    with pytest.raises(LLMBadRequestError, match="set api_mode to 'chat'"):
        await llm.acompletion([llm.render(text("user", "Go"))])


def test_sealed_reasoning_is_not_shown_to_a_model_that_thinks_in_another_form() -> None:
    blocks = [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"},
        {"type": "thinking", "thinking": "t", "signature": "s"},
    ]
    said = Message(role="assistant", content=[TextContent(text="x")], thinking_blocks=blocks)
    claude, gpt = LLM(model="anthropic/claude-sonnet-4-5"), LLM(model="openai/gpt-5")
    assert claude.render(said)["thinking_blocks"] == blocks[1:]
    assert gpt.render(said)["thinking_blocks"] == blocks[:1]
    wire = {"role": "assistant", "content": "x", "thinking_blocks": blocks}
    assert claude.adapted([wire])[0]["thinking_blocks"] == blocks[1:]
    assert gpt.adapted([wire])[0]["thinking_blocks"] == blocks[:1]


async def test_a_model_that_does_not_think_is_not_asked_for_its_reasoning() -> None:
    async with ModelServer([say("a"), say("b")]) as server:
        for name, is_asked in (("openai/gpt-4o", False), ("openai/gpt-5", True)):
            llm = model(server, model=name)
            await llm.acompletion([llm.render(text("user", "Go"))])
            assert ("include" in server.last_request.json) is is_asked


async def test_a_recording_keeps_the_items_of_an_answer(tmp_path: Path) -> None:
    file = tmp_path / "recording.jsonl"
    async with ModelServer([call("terminal", {}, reasoning="Hm.")]) as server:
        llm = model(server, record_to=str(file))
        first = await llm.acompletion([llm.render(text("user", "Go"))], [TOOL])
    again = LLM(model=f"replay/{file}", api_mode="responses")
    second = await again.acompletion([again.render(text("user", "Go"))], [TOOL])
    assert second.message == first.message
