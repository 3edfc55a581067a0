"""Turns of an editor's session, through the protocol's own client library."""

from __future__ import annotations

import asyncio

import pytest
from acp import RequestError

from agent_core.testing.model_turns import call, fail, finish, say
from drydock_client import DrydockClient
from tests.contract.acp.conftest import TOKEN, Desk


async def test_an_answer_is_streamed_and_the_turn_ends(desk: Desk) -> None:
    desk.answer = lambda request: say("one two three", token_delay=0.2)
    session = await desk.new()
    assert await desk.prompt(session.session_id, "Count.") == "end_turn"
    chunks = desk.editor.of("agent_message_chunk")
    assert len(chunks) > 1
    assert desk.editor.said() == "one two three"
    assert not desk.editor.of("user_message_chunk")


async def test_a_command_is_a_tool_call_from_its_beginning_to_its_end(desk: Desk) -> None:
    turns = iter([call("terminal", {"command": "ls"}, text="I look."), finish("Nothing there.")])
    desk.answer = lambda request: next(turns)
    session = await desk.new()
    assert await desk.prompt(session.session_id, "What is there?") == "end_turn"
    (begun,) = desk.editor.of("tool_call")
    ended = desk.editor.of("tool_call_update")[-1]
    assert (begun.kind, begun.status, begun.title, begun.raw_input["command"]) == (
        "execute",
        "in_progress",
        "`ls`",
        "ls",
    )
    assert (ended.tool_call_id, ended.status) == (begun.tool_call_id, "completed")
    assert "ran ls" in ended.content[0].content.text
    assert desk.editor.said() == "I look.Nothing there."


async def test_a_cancelled_turn_says_so_and_the_agent_is_paused(desk: Desk) -> None:
    desk.answer = lambda request: say("word " * 200, token_delay=0.1)
    session = await desk.new()
    prompt = asyncio.create_task(desk.prompt(session.session_id, "Talk."))
    await desk.editor.until(lambda: bool(desk.editor.said()))
    await desk.conn.cancel(session_id=session.session_id)
    assert await prompt == "cancelled"
    async with DrydockClient(desk.url, TOKEN) as client:
        state = await client.wait(session.session_id)
    assert state.state == "paused"
    desk.answer = lambda request: say("Back.")
    assert await desk.prompt(session.session_id, "Go on.") == "end_turn"


async def test_a_prompt_that_is_cancelled_at_once_ends_too(desk: Desk) -> None:
    desk.answer = lambda request: say("word " * 200, token_delay=0.1)
    session = await desk.new()
    prompt = asyncio.create_task(desk.prompt(session.session_id, "Talk."))
    await asyncio.sleep(0)
    await desk.conn.cancel(session_id=session.session_id)
    assert await prompt == "cancelled"


async def test_a_second_prompt_has_to_wait_for_the_first(desk: Desk) -> None:
    desk.answer = lambda request: say("word " * 200, token_delay=0.1)
    session = await desk.new()
    prompt = asyncio.create_task(desk.prompt(session.session_id, "Talk."))
    await desk.editor.until(lambda: bool(desk.editor.said()))
    with pytest.raises(RequestError, match="another prompt of this session is being answered"):
        await desk.prompt(session.session_id, "More.")
    await desk.conn.cancel(session_id=session.session_id)
    assert await prompt == "cancelled"


async def test_an_agent_that_fails_answers_with_an_error_and_takes_the_next_prompt(desk: Desk) -> None:
    desk.answer = lambda request: fail(401, "bad key")
    session = await desk.new()
    with pytest.raises(RequestError) as caught:
        await desk.prompt(session.session_id, "Hello?")
    assert caught.value.code == -32603
    assert "bad key" in str(caught.value)
    desk.answer = lambda request: say("Now.")
    assert await desk.prompt(session.session_id, "Again?") == "end_turn"


async def test_an_agent_that_reaches_its_limit_of_steps_says_so(desk: Desk) -> None:
    async with DrydockClient(desk.url, TOKEN) as client:
        settings = {"llm_model": "openai/scripted", "llm_base_url": desk.model.url, "llm_api_key": "sk-x"}
        await client.settings.change(max_iterations=1, **settings)
    desk.answer = lambda request: call("terminal", {"command": "ls"})
    session = await desk.new()
    assert await desk.prompt(session.session_id, "Go.") == "max_turn_requests"
