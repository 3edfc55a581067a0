"""An agent that only repeats itself is warned, then stopped; its user can set it going again."""

from __future__ import annotations

import pytest

from agent_core.events.control import AgentState, AgentStateChanged
from agent_core.events.llm_events import MessageEvent
from agent_core.testing.model_turns import Call, Turn
from tests.integration.session.conftest import House, finish, run, until_state, user

pytestmark = pytest.mark.docker


async def test_an_agent_that_repeats_itself_is_stopped_and_goes_on_when_told_something(house: House) -> None:
    model = await house.model([*(Turn(calls=(run("echo same"),)) for _ in range(4)), finish("understood")])
    async with house.running(model, "go") as session:
        events = await until_state(session, AgentState.ERROR)
        last = events[-1]
        assert isinstance(last, AgentStateChanged)
        assert last.reason == "AgentStuckInLoopError: Agent got stuck in a loop"
        assert "it repeats the same action and gets the same result" in last.detail
        assert model.request_count == 4
        await session.send(user("try something else"))
        await until_state(session, AgentState.FINISHED)


async def test_a_model_that_calls_what_does_not_exist_again_and_again_is_warned_and_then_stopped(house: House) -> None:
    model = await house.model(lambda request: Turn(calls=(Call("no_such_tool", {"number": len(request.messages)}),)))
    async with house.running(model, "go") as session:
        events = await until_state(session, AgentState.ERROR)
    warnings = [event for event in events if isinstance(event, MessageEvent) and event.source == "environment"]
    assert len(warnings) == 1
    assert model.request_count == 4
