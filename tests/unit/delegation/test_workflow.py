"""Scripts that put sub-agents to work, in a session: the program is real, and runs on this host."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent_core.agent.subagent import DELEGATING
from agent_core.events.control import AgentState
from agent_core.events.llm_events import ActionEvent, AgentErrorEvent, ObservationEvent
from agent_core.events.serialization import AnyEvent
from agent_core.security.risk import SecurityRisk
from agent_core.security.shell_rules import ShellRuleAnalyzer
from agent_core.skills.agent_catalog import register_agent_definition, unregister_agent
from agent_core.skills.agent_definition import AgentDefinition
from agent_core.testing.model_turns import Call, Turn, calls
from agent_core.tools.subagents import MAX_DEPTH
from agent_core.tools.workflow import WorkflowAction, WorkflowObservation
from tests.unit.delegation.family import GO, PRICE, done, family, run, state_of, task
from tests.unit.delegation.test_stopping import all_answered_once, answers, cost

TOOLS = ("terminal", "workflow")


def script(body: str, **fields: Any) -> Turn:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return calls(Call("workflow", {"script": f"async def workflow(agent):\n{lines}", **fields}))


def observed(events: list[AnyEvent]) -> WorkflowObservation:
    (found,) = [
        event.observation
        for event in events
        if isinstance(event, ObservationEvent) and isinstance(event.observation, WorkflowObservation)
    ]
    return found


async def test_a_script_fans_out_three_sub_agents_whose_cost_is_the_conversations() -> None:
    body = "return await asyncio.gather(*(agent(f'do {name}') for name in 'abc'))"
    work = {f"do {name}": [run(f"do {name}"), done(f"{name} is done")] for name in "abc"}
    lines = {GO: [script(body), done()], **work}
    async with family(lines, tools=TOOLS) as one:
        await one.say()
        events = await one.at_rest()
        assert await all_answered_once(one)
        children = one.children()
        (call,) = [event.id for event in events if isinstance(event, ActionEvent) and event.tool_name == "workflow"]
        total, own = await cost(one, "c"), await cost(one, "c", "default")
        theirs = await cost(one, "c", f"workflow:{call}")
        spent = [await cost(one, child) for child in children]
        shells = sorted(session for session, _ in one.commands)
        killed = sorted(one.killed)
    made = observed(events)
    assert json.loads(made.result) == ["a is done", "b is done", "c is done"]
    assert not made.is_error
    assert [(run.prompt, run.status) for run in made.runs] == [(f"do {name}", "completed") for name in "abc"]
    assert len(children) == len(set(shells)) == 3
    assert shells == killed
    assert theirs == pytest.approx(sum(spent))
    assert total == pytest.approx(own + theirs)


async def test_a_stop_ends_the_script_and_all_its_sub_agents() -> None:
    body = "await asyncio.gather(agent('do a'), agent('do b'), agent('do c'))"
    lines = {GO: [script(body, concurrency=2), done()]} | {
        f"do {name}": [run(f"wait {name}"), done()] for name in "abc"
    }
    async with family(lines, tools=TOOLS) as one:
        await one.say()
        await one.began("wait a", "wait b")
        await one.ask_for(AgentState.STOPPED)
        events = await one.until(
            lambda events: state_of(events) is AgentState.STOPPED and 0 not in answers(events).values()
        )
        assert sorted(one.interrupted) == ["wait a", "wait b"]
        assert await all_answered_once(one)
        assert len(one.children()) == 2
        for child in one.children():
            assert state_of(await one.log(child)) is AgentState.PAUSED
    (stopped,) = [event for event in events if isinstance(event, AgentErrorEvent)]
    assert "The sub-agents of the script were stopped, too" in stopped.error


async def test_after_a_crash_a_script_is_not_run_again_and_its_call_says_so() -> None:
    lines = {GO: [script("return await agent('do a')"), done()], "do a": [run("wait a"), done()]}
    async with family(lines, tools=TOOLS) as one:
        await one.say()
        await one.began("wait a")
        await one.crash()
        await one.begin()
        events = await one.at_rest()
        assert len(one.requests_of("do a")) == 1
    (lost,) = [event for event in events if isinstance(event, AgentErrorEvent)]
    assert "unknown" in lost.error


async def test_the_money_of_the_conversation_bounds_its_scripts() -> None:
    body = """try:
    return [await agent('do a') for _ in range(50)]
except AgentError as error:
    return str(error)"""
    async with family(
        {GO: [script(body), done()], "do a": [done("a")]}, tools=TOOLS, settings={"max_budget": 300 * PRICE}
    ) as one:
        await one.say()
        events = await one.at_rest()
    made = observed(events)
    assert "budget" in made.result
    assert made.runs[-1].status == "error"
    assert len(made.runs) < 50


async def test_scripts_of_sub_agents_are_nested_so_deep_and_no_deeper() -> None:
    name = "test-scripts"
    register_agent_definition(AgentDefinition(name=name, tools=["workflow"]))
    deeper = [script(f"return await agent('level {n + 1}', {name!r})") for n in range(MAX_DEPTH + 1)]
    lines = {GO: [deeper[0], done()]} | {f"level {n}": [deeper[n], done(f"level {n}")] for n in range(1, MAX_DEPTH + 1)}
    try:
        async with family(lines, tools=TOOLS) as one:
            await one.say()
            await one.at_rest()
            children = one.children()
            deepest = await one.log(max(children, key=len))
    finally:
        unregister_agent(name)
    assert len(children) == MAX_DEPTH
    assert f"nested {MAX_DEPTH} deep" in observed(deepest).text


async def test_of_the_calls_of_one_answer_the_sixth_puts_nobody_to_work() -> None:
    turn = calls(*(task("do a") for _ in range(5)), *script("return await agent('do a')").calls)
    async with family({GO: [turn, done()], "do a": [done()]}, tools=(*TOOLS, "task_tool_set")) as one:
        await one.say()
        events = await one.at_rest()
        assert len(one.children()) == 5
    assert "at most 5 calls in one answer" in observed(events).text


def test_sub_agents_do_not_inherit_the_tool() -> None:
    assert "workflow" in DELEGATING


def test_the_code_of_a_script_is_judged_as_code() -> None:
    def judged(text: str) -> SecurityRisk:
        action = WorkflowAction(script=text)
        return ShellRuleAnalyzer().security_risk(ActionEvent(tool_name="workflow", tool_call_id="c", action=action))

    assert judged("import shutil\nshutil.rmtree('/')") is SecurityRisk.HIGH
