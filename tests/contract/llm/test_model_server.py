"""The model server itself: what tests and the bench rely on."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import pytest

from agent_core.errors import LLMInternalError
from agent_core.events.messages import Message
from agent_core.llm.llm import LLM
from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Turn, finish, say
from bench.model_process import named, results_since_user


def model(server: ModelServer) -> LLM:
    return LLM(model="openai/x", base_url=server.url, num_retries=1)


TOOLS = [{"type": "function", "function": {"name": "terminal", "parameters": {"type": "object", "properties": {}}}}]


def history(steps: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": 'say "role":"tool" and "role": "tool"'}]
    for number in range(steps):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "terminal", "arguments": "{}"}}
        messages.append({"role": "assistant", "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": '{"role":"tool"}'})
    return messages


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_results_are_counted_without_parsing(separators: tuple[str, str]) -> None:
    messages = [*history(3), *history(2)]
    content = json.dumps({"messages": messages}, separators=separators).encode()
    assert results_since_user(content) == 2


async def test_a_script_of_steps_runs_commands_and_finishes_after_each_message() -> None:
    async with ModelServer(named("steps:2")) as server:
        llm = model(server)
        said = []
        for steps in (0, 1, 2):
            response = await llm.acompletion(history(steps), TOOLS)
            (call,) = response.message.tool_calls or []
            said.append((call.name, json.loads(call.arguments)))
    assert said == [
        ("terminal", {"command": "echo step 0", "security_risk": "LOW"}),
        ("terminal", {"command": "echo step 1", "security_risk": "LOW"}),
        ("finish", {"message": "2 steps done."}),
    ]


async def test_a_script_of_steps_answers_a_request_without_tools_in_words() -> None:
    async with ModelServer(named("steps:2")) as server:
        response = await model(server).acompletion(history(0))
    assert response.message.text == "The steps so far."


def test_an_unknown_script_is_refused() -> None:
    with pytest.raises(ValueError, match="use instant or steps:N"):
        named("nonsense")


async def test_a_script_that_is_used_up_says_so() -> None:
    async with ModelServer([finish("done")]) as server:
        llm = model(server)
        await llm.acompletion(history(0))
        with pytest.raises(LLMInternalError, match="script of the model server is at its end"):
            await llm.acompletion(history(0))


async def test_the_answer_may_depend_on_the_request() -> None:
    def script(request: ModelRequest) -> Turn:
        return say(f"{request.model}: {request.messages[-1]['content']}")

    async with ModelServer(script) as server:
        llm = model(server)
        response = await llm.acompletion([llm.render(Message.user("ping"))])
    assert response.message.text == "x: ping"


async def test_requests_in_pieces_and_several_at_once_are_answered_in_order() -> None:
    body = json.dumps({"messages": []})
    text = f"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    async with ModelServer([say("one"), say("two", token_delay=0.001), say("three")]) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(server.origin.rpartition(":")[2]))
        for character in text:
            writer.write(character.encode())
            await writer.drain()
        writer.write(text.encode() * 2)
        answers = [await reader.readuntil(b"[DONE]\n\n\r\n0\r\n\r\n") for _ in range(3)]
        writer.close()
        await writer.wait_closed()
    assert [answer.count(word) for answer, word in zip(answers, (b"one", b"two", b"three"), strict=True)] == [1, 1, 1]


async def test_another_path_is_not_found() -> None:
    async with ModelServer([]) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(server.origin.rpartition(":")[2]))
        writer.write(b"GET /v1/models HTTP/1.1\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 404")
        writer.close()
        await writer.wait_closed()


async def test_as_a_process_it_prints_its_address_and_ends_when_told() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.model_process", "--script", "instant", stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(60):
            assert process.stdout is not None
            url = (await process.stdout.readline()).decode().strip()
            response = await LLM(model="openai/x", base_url=url).acompletion(history(0))
            assert response.message.text == "Ready."
    finally:
        process.terminate()
        async with asyncio.timeout(60):
            await process.wait()
    assert process.returncode == 0
