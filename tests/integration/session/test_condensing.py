"""Long conversations: the model is shown a summary instead of the middle, and an overflow always comes to an end."""

from __future__ import annotations

import pytest

from agent_core.events.control import AgentState, AgentStateChanged, Condensation, CondensationRequest
from agent_core.llm.llm import LLM
from agent_core.memory.condensers import ConversationWindowCondenser, get_default_condenser
from agent_core.testing.model_server import ModelRequest
from agent_core.testing.model_turns import Call, Turn, fail
from tests.integration.session.conftest import House, finish, until_state

pytestmark = pytest.mark.docker

TOO_LONG = "This model's maximum context length is 10 tokens; please reduce the length of the messages."


def think(number: int) -> Turn:
    return Turn(calls=(Call("think", {"thought": f"thought {number}"}),))


def is_summary(request: ModelRequest) -> bool:
    return "tools" not in request.json


async def test_a_long_task_goes_on_over_a_summary_and_its_cost_is_counted(house: House) -> None:
    steps = iter([*(think(number) for number in range(14)), finish("all thought")])
    model = await house.model(lambda request: Turn(text="the gist of it") if is_summary(request) else next(steps))
    llm = LLM(
        model="openai/scripted",
        base_url=model.url,
        api_key="sk-test-key-000",
        input_cost_per_token=1e-6,
        output_cost_per_token=1e-6,
    )
    async with house.running(None, "think", llm=llm, condenser=get_default_condenser(llm, 20)) as session:
        events = await until_state(session, AgentState.FINISHED)
    (condensation,) = [event for event in events if isinstance(event, Condensation)]
    assert condensation.summary == "the gist of it"
    assert condensation.metrics is not None
    assert condensation.metrics.by_usage_id["condenser"].accumulated_cost > 0
    last = model.requests[-1]
    assert "the gist of it" in str(last.messages)
    assert "thought 2" not in str(last.messages)
    assert "thought 13" in str(last.messages)
    assert len(last.messages) < 20


async def test_an_overflow_is_answered_by_forgetting_and_the_task_goes_on(house: House) -> None:
    def answer(request: ModelRequest) -> Turn:
        if len(request.messages) > 9:
            return fail(400, TOO_LONG)
        return think(len(request.messages)) if "forgotten" not in done else finish()

    done: list[str] = []
    model = await house.model(answer)
    async with house.running(model, "think", condenser=ConversationWindowCondenser()) as session:
        async with session.stream.subscribe(after=-1) as events:
            async for event in events:
                if isinstance(event, Condensation):
                    done.append("forgotten")
                if isinstance(event, AgentStateChanged) and event.agent_state is AgentState.FINISHED:
                    break
        kinds = [type(event) async for event in session.stream.history()]
    assert kinds.index(CondensationRequest) < kinds.index(Condensation)


async def test_an_overflow_that_nothing_helps_against_ends_in_a_clear_error(house: House) -> None:
    model = await house.model(lambda request: fail(400, TOO_LONG))
    llm = LLM(model="openai/scripted", base_url=model.url, api_key="sk-test-key-000", num_retries=1)
    async with house.running(None, "go", llm=llm, condenser=get_default_condenser(llm)) as session:
        events = await until_state(session, AgentState.ERROR)
    assert model.request_count < 30
    assert "could not be had" in events[-1].detail or "spared" in events[-1].detail  # type: ignore[union-attr]


async def test_without_a_condenser_an_overflow_is_the_users_to_solve(house: House) -> None:
    model = await house.model(lambda request: fail(400, TOO_LONG))
    async with house.running(model, "go") as session:
        events = await until_state(session, AgentState.ERROR)
    assert model.request_count == 1
    assert not [event for event in events if isinstance(event, CondensationRequest)]
