"""A model without tools of its own, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr

from agent_core.agent.agent import Agent
from agent_core.agent.step import StepInput
from agent_core.errors import FunctionCallValidationError
from agent_core.events.llm_events import ActionEvent, MessageEvent
from agent_core.events.messages import Message, MessageToolCall, TextContent
from agent_core.llm.llm import LLM, LLMResponse
from agent_core.llm.transport.exchange import CallContext
from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import say
from agent_core.tools.terminal import TerminalAction

CALL = "I look.\n\n<function=terminal>\n<parameter=command>ls</parameter>\n"


def model(server: ModelServer, **options: Any) -> LLM:
    own = {"model": "openai/scripted", "base_url": server.url, "api_key": SecretStr("k"), "native_tool_calling": False}
    return LLM.model_validate({**own, "num_retries": 1, "timeout": 5, **options})


def agent_of(llm: LLM) -> tuple[Agent, StepInput]:
    agent = Agent.model_validate({"llm": llm, "tools": [{"name": "terminal"}]})
    tools = agent.resolve_tools()
    schemas = [tool.to_openai_tool(add_security_risk_prediction=True) for tool in tools.values()]
    prompt = [
        llm.render(Message(role="system", content=[TextContent(text="You help.")])),
        llm.render(Message.user("Look around")),
    ]
    return agent, StepInput(prompt=prompt, tools=tools, tool_schemas=schemas)


async def test_tools_and_calls_travel_as_text_and_come_back_as_calls() -> None:
    async with ModelServer([say(CALL)]) as server:
        agent, step = agent_of(model(server))
        outcome = await agent.astep(step)
    body = server.last_request.json
    assert "tools" not in body
    assert body["stop"] == ["</function"]
    assert "Function 1: terminal" in body["messages"][0]["content"]
    assert body["messages"][1]["content"].endswith("Look around")
    (event,) = outcome.events
    assert isinstance(event, ActionEvent)
    assert isinstance(event.action, TerminalAction)
    assert event.action.command == "ls"
    assert event.thought_text == "I look."
    assert event.tool_call_id == "toolu_01"


def result(number: int) -> Message:
    text = TextContent(text=f"out {number}")
    return Message(role="tool", content=[text], tool_call_id=f"c{number}", name="terminal")


async def test_a_history_of_native_batches_goes_to_such_a_model_call_by_call() -> None:
    calls = [MessageToolCall(id=f"c{one}", name="terminal", arguments=f'{{"command": "{one}"}}') for one in (1, 2)]
    history = [
        Message.user("Go"),
        Message(role="assistant", content=[], tool_calls=calls),
        *(result(one) for one in (1, 2)),
    ]
    async with ModelServer([say(CALL)]) as server:
        llm = model(server)
        _, step = agent_of(llm)
        response = await llm.acompletion([llm.render(message) for message in history], step.tool_schemas)
    sent = server.last_request.messages
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert sent[4]["content"] == "<function=terminal>\n<parameter=command>2</parameter>\n</function>"
    assert sent[5]["content"] == "EXECUTION RESULT of [terminal]:\nout 2"
    assert response.message.tool_calls is not None
    assert response.message.tool_calls[0].id == "toolu_03"


async def test_a_call_that_cannot_be_is_counted_and_leads_to_a_message_of_the_environment() -> None:
    counted: list[LLMResponse] = []
    text = "<function=terminal>\n<parameter=speed>9</parameter>\n</function>"
    async with ModelServer([say(text), say(text)]) as server:
        agent, step = agent_of(model(server))
        outcome = await agent.astep(step)
        context = CallContext(on_response=lambda response, usage_id: counted.append(response))
        with pytest.raises(FunctionCallValidationError, match="no parameter 'speed'"):
            await agent.llm.acompletion(step.prompt, step.tool_schemas, context=context)
    assert len(counted) == 1
    said, told = outcome.events
    assert isinstance(said, MessageEvent)
    assert isinstance(told, MessageEvent)
    assert (said.source, said.wait_for_response) == ("agent", False)
    assert (told.source, told.llm_message.role) == ("environment", "user")
    assert "no parameter 'speed'" in told.llm_message.text


@pytest.mark.parametrize(
    "options",
    [
        {"disable_stop_word": True},
        {"model": "openai/o3-mini"},
        {"capability_overrides": {"supports_stop_words": False}},
    ],
)
async def test_no_stop_word_is_sent_where_none_is_wanted(options: dict[str, Any]) -> None:
    async with ModelServer([say(CALL + "</function>")]) as server:
        agent, step = agent_of(model(server, **options))
        outcome = await agent.astep(step)
    assert "stop" not in server.last_request.json
    assert isinstance(outcome.events[0], ActionEvent)


async def test_some_models_are_not_shown_the_example() -> None:
    async with ModelServer([say("Hi"), say("Hi")]) as server:
        for name, shown in (("openai/devstral-small", False), ("openai/other", True)):
            agent, step = agent_of(model(server, model=name))
            await agent.astep(step)
            assert ("EXAMPLE" in server.last_request.messages[1]["content"]) is shown


async def test_a_model_known_to_take_no_tools_is_spoken_to_in_text() -> None:
    overrides = {"supports_function_calling": False}
    async with ModelServer([say(CALL)]) as server:
        agent, step = agent_of(model(server, native_tool_calling=True, capability_overrides=overrides))
        await agent.astep(step)
    assert "tools" not in server.last_request.json
