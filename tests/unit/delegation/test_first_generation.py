"""Delegation as the first generation has it: an agent and its inputs, steps that count as the caller's."""

from __future__ import annotations

import pytest

from agent_core.agent.base import AgentBase
from agent_core.agent.codeact import CodeActAgent
from agent_core.events.llm_events import ActionEvent, MessageEvent, ObservationEvent, SystemPromptEvent
from agent_core.testing.model_turns import Call, calls
from agent_core.tools.delegate import AgentDelegateAction, AgentDelegateObservation
from tests.unit.delegation.family import GO, done, family, run
from tests.unit.delegation.test_stopping import cost

TOOLS = ("terminal", "delegate_to_browsing_agent")
BROWSE = calls(Call("delegate_to_browsing_agent", {"task": "look it up"}))


@pytest.fixture
def browsing_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(AgentBase.agents, "BrowsingAgent", CodeActAgent)  # one that needs no browser


@pytest.mark.usefixtures("browsing_agent")
async def test_the_agent_gets_its_task_and_its_outputs_are_the_result() -> None:
    lines = {GO: [BROWSE, done()], "TASK: look it up": [run("ls"), done("found")]}
    async with family(lines, tools=TOOLS) as one:
        await one.say()
        events = await one.at_rest()
        (child,) = one.children()
        log = await one.log(child)
        total = await cost(one, "c")
        assert total == pytest.approx(await cost(one, "c", "default") + await cost(one, child))
    (action,) = [event.action for event in events if isinstance(event, ActionEvent) and event.tool_name != "finish"]
    assert action == AgentDelegateAction(agent="BrowsingAgent", inputs={"task": "look it up"})
    (seen, _) = [event.observation for event in events if isinstance(event, ObservationEvent)]
    assert isinstance(seen, AgentDelegateObservation)
    head, text = seen.text.split("\n")
    assert head == "The delegated agent has ended:"
    assert text == "BrowsingAgent finishes task with result: found"
    assert seen.outputs == {"result": "found"}
    assert isinstance(log[1], SystemPromptEvent)
    assert [event.llm_message.text for event in log if isinstance(event, MessageEvent)] == ["TASK: look it up"]


@pytest.mark.usefixtures("browsing_agent")
async def test_its_answers_count_for_the_limit_of_the_one_that_asks() -> None:
    lines = {GO: [BROWSE, run("late"), done()], "TASK: look it up": [*[run(f"step {n}") for n in range(3)], done()]}
    async with family(lines, tools=TOOLS, settings={"max_iterations": 5}) as one:
        await one.say()
        await one.at_rest()
    # One answer that asks, four of the browsing agent, none is left to run the late command.
    assert [command for _, command in one.commands] == ["step 0", "step 1", "step 2"]


@pytest.mark.usefixtures("browsing_agent")
async def test_it_has_no_more_answers_than_are_left_to_the_one_that_asks() -> None:
    lines = {GO: [BROWSE, done()], "TASK: look it up": [run(f"step {n}") for n in range(20)]}
    async with family(lines, tools=TOOLS, settings={"max_iterations": 5}) as one:
        await one.say()
        events = await one.at_rest()
    assert len(one.commands) == 4
    (seen,) = [event.observation for event in events if isinstance(event, ObservationEvent)]
    assert "BrowsingAgent encountered an error: Agent reached maximum iteration" in seen.text
    assert seen.is_error


async def test_an_agent_that_is_not_there_is_a_result_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_core.tools.subagents.is_tool_usable", lambda name: name == "terminal")
    monkeypatch.delitem(AgentBase.agents, "BrowsingAgent", raising=False)
    async with family({GO: [BROWSE, done()]}, tools=TOOLS) as one:
        await one.say()
        events = await one.at_rest()
        assert not one.children()
    (seen, _) = [event.observation for event in events if isinstance(event, ObservationEvent)]
    assert "no kind of sub-agent called 'BrowsingAgent'" in seen.text
