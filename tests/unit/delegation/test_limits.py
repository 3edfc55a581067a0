"""What bounds sub-agents: their number, their depth, their iterations, and the money of whoever asks them."""

from __future__ import annotations

import pytest

from agent_core.agent.agent import Agent
from agent_core.events.control import AgentState, AgentStateChanged
from agent_core.events.llm_events import ActionEvent, ObservationEvent
from agent_core.skills.agent_catalog import AgentDefinition, register_agent_definition, unregister_agent
from agent_core.testing.model_turns import Call, calls
from agent_core.tools.context import TaskReport
from agent_core.tools.delegate import DelegateAction
from agent_core.tools.subagents import MAX_DEPTH
from tests.unit.delegation.family import GO, PRICE, done, family, hand_out, results, run, spawn, state_of, task
from tests.unit.delegation.test_stopping import all_answered_once, cost


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (spawn(), "at least one name"),
        (spawn("a", " "), "an id is empty"),
        (spawn("a", "a"), "not different"),
        (spawn("x" * 1_000_000), "one line of at most 64"),
        (spawn("two\nlines"), "one line of at most 64"),
        (hand_out(**{"x" * 1_000_000: "do it"}), "spawn it first"),
        (task("look", subagent_type="x" * 1_000_000), "there are: general-purpose"),
        (spawn("a", agent_types=["bash", "bash"]), "2 agent_types for 1 ids"),
        (spawn("a", "b", agent_types=["bash", "nonesuch"]), "no kind of sub-agent called 'nonesuch'"),
        (spawn("a", "b", "c", "d", "e", "f"), "at most 5 are allowed"),
        (hand_out(), "at least one task"),
        (hand_out(a="do it"), "there is no sub-agent a; spawn it first"),
        (task("look", subagent_type="nonesuch"), "there are: general-purpose"),
        (task("look", resume="task_00000007"), "there is no task 'task_00000007'"),
        (task(" "), "the prompt is empty"),
    ],
)
async def test_what_cannot_be_is_a_result_that_says_why_and_begins_nothing(call: Call, error: str) -> None:
    async with family({GO: [calls(call), done()]}) as one:
        await one.say()
        events = await one.at_rest()
        assert not one.children()
    (seen,) = [
        event.observation for event in events if isinstance(event, ObservationEvent) and event.tool_name != "finish"
    ]
    assert seen.is_error
    assert error in seen.text
    assert len(seen.text) < 500


async def test_a_spawn_is_all_or_nothing_and_counts_those_that_are_there() -> None:
    lines = {
        GO: [
            calls(spawn("a", "b", "c")),
            calls(spawn("d", "e", "f")),  # six in all
            calls(hand_out(d="do d")),  # so not even the first of them is there
            calls(spawn("a", "d", "e")),  # an id that is in use counts once
            calls(hand_out(d="do d")),
            done(),
        ],
        "do d": [done("d is done")],
    }
    async with family(lines) as one:
        await one.say()
        events = await one.at_rest()
    texts = results(events)
    assert "there are 3 already (a, b, c)" in texts[1]
    assert "there is no sub-agent d" in texts[2]
    assert texts[4] == "Completed delegation of 1 tasks\n1. Agent d: d is done"


@pytest.mark.parametrize("kind", ["task", "delegate"])
async def test_of_a_hundred_calls_in_one_answer_five_are_carried_out(kind: str) -> None:
    many = [task(f"look {n}") if kind == "task" else hand_out(a=f"look {n}") for n in range(100)]
    lines = {GO: [calls(spawn("a")), calls(*many), done()]} | {f"look {n}": [done(f"seen {n}")] for n in range(100)}
    async with family(lines) as one:
        await one.say()
        events = await one.at_rest()
        assert await all_answered_once(one)
        assert len(one.children()) == (5 if kind == "task" else 1)
    texts = results(events)[1:]
    assert len(texts) == 100
    assert sum("seen" in text for text in texts) == 5
    assert all("at most 5 calls in one answer" in text for text in texts[5:])


async def test_a_hundred_spawns_leave_five_sub_agents() -> None:
    lines = {GO: [calls(*(spawn(f"a{n}") for n in range(100))), done()]}
    async with family(lines) as one:
        await one.say()
        events = await one.at_rest()
    texts = results(events)
    assert sum(text.startswith("Spawned 1 sub-agents") for text in texts) == 5
    assert sum("at most 5 are allowed" in text for text in texts) == 95


async def test_sub_agents_are_nested_so_deep_and_no_deeper() -> None:
    name = "test-nesting"
    register_agent_definition(AgentDefinition(name=name, tools=["task_tool_set"]))
    deeper = [calls(task(f"level {n + 1}", subagent_type=name)) for n in range(MAX_DEPTH + 1)]
    lines = {GO: [deeper[0], done()]} | {
        f"level {n}": [deeper[n], done(f"back from {n}")] for n in range(1, MAX_DEPTH + 1)
    }
    try:
        async with family(lines) as one:
            await one.say()
            events = await one.at_rest()
            children = one.children()
            deepest = await one.log(max(children, key=len))
            total, own = await cost(one, "c"), await cost(one, "c", "default")
            below = await cost(one, min(children, key=len))
    finally:
        unregister_agent(name)
    assert len(children) == MAX_DEPTH
    assert f"nested {MAX_DEPTH} deep" in results(deepest)[0]
    assert "back from 1" in results(events)[0]
    assert total == pytest.approx(own + below)
    assert below > own


async def test_each_sub_agent_has_the_iterations_of_its_kind_or_of_its_parent() -> None:
    name = "test-short"
    register_agent_definition(AgentDefinition(name=name, tools=["terminal"], max_iteration_per_run=2))
    lines = {
        GO: [calls(task("go on", subagent_type=name)), calls(task("go on and on")), done()],
        "go on": [run(f"step {n}") for n in range(20)],
        "go on and on": [run(f"walk {n}") for n in range(20)],
    }
    try:
        async with family(lines, settings={"max_iterations": 4}) as one:
            await one.say()
            events = await one.at_rest()
    finally:
        unregister_agent(name)
    first, second = results(events)
    assert "Status: error" in first
    assert "Current iteration: 2, max iteration: 2" in first
    assert "Current iteration: 4, max iteration: 4" in second
    assert sorted(command for _, command in one.commands) == sorted(
        [*(f"step {n}" for n in range(2)), *(f"walk {n}" for n in range(4))]
    )


async def test_the_iterations_of_a_kind_are_for_each_task() -> None:
    name = "test-short"
    register_agent_definition(AgentDefinition(name=name, tools=["terminal"], max_iteration_per_run=3))
    lines = {
        GO: [calls(spawn("a", agent_types=[name])), *[calls(hand_out(a=f"task {n}")) for n in (1, 2, 3)], done()],
        "task 1": [run("one"), done("1"), run("two"), done("2"), run("three"), done("3")],
    }
    try:
        async with family(lines) as one:
            await one.say()
            events = await one.at_rest()
    finally:
        unregister_agent(name)
    assert [text.rpartition(": ")[2] for text in results(events)[1:]] == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("report", "text"),
    [
        (TaskReport("done"), "done"),
        (TaskReport(""), "(It finished without a word.)"),
        (TaskReport("", "It broke."), "It broke."),
        (TaskReport("half", "It broke."), "It broke.\nIts last word before that: half"),
    ],
)
def test_a_report_always_says_something(report: TaskReport, text: str) -> None:
    assert report.text == text


async def test_each_sub_agent_has_the_money_of_its_kind_however_much_its_parent_has() -> None:
    name = "test-poor"
    register_agent_definition(AgentDefinition(name=name, tools=["terminal"], max_budget_per_run=250 * PRICE))
    lines = {
        GO: [calls(task("go on", subagent_type=name)), done()],
        "go on": [run(f"step {n}") for n in range(20)],
    }
    try:
        async with family(lines, settings={"max_budget": 100.0}) as one:
            await one.say()
            events = await one.at_rest()
            spent = await cost(one, "c~task_00000001")
    finally:
        unregister_agent(name)
    (text,) = results(events)
    assert "Status: error" in text
    assert "Agent reached maximum budget" in text
    assert 250 * PRICE <= spent < 500 * PRICE
    assert state_of(events) is not AgentState.ERROR, "the parent has money left"


async def test_an_error_comes_with_what_the_sub_agent_had_said() -> None:
    lines = {
        GO: [calls(task("look")), done()],
        "look": [calls(Call("terminal", {"command": "ls"}), text="I look first.") for _ in range(9)],
    }
    async with family(lines, settings={"max_iterations": 2}) as one:
        await one.say()
        events = await one.at_rest()
    (text,) = results(events)
    assert text.startswith("Task ID: task_00000001\nSubagent: general-purpose\nStatus: error\n\nAgent reached maximum")
    assert text.endswith("Its last word before that: I look first.")


async def test_what_sub_agents_cost_counts_for_the_conversation_under_their_names() -> None:
    lines = {
        GO: [calls(spawn("a", "b")), calls(hand_out(a="do a", b="do b")), calls(task("look")), done()],
        "do a": [run("ls"), done()],
        "do b": [done()],
        "look": [done()],
    }
    async with family(lines) as one:
        await one.say()
        events = await one.at_rest()
        last = [event.metrics for event in events if isinstance(event, ActionEvent)][-1]
        assert last is not None
        by_id = {usage_id: figures.accumulated_cost for usage_id, figures in last.by_usage_id.items()}
        logs = {child: await cost(one, child) for child in one.children()}
    assert set(by_id) == {"default", "delegate:a", "delegate:b", "task:task_00000001"}
    assert last.accumulated_cost == pytest.approx(sum(by_id.values()))
    assert by_id["task:task_00000001"] == pytest.approx(logs["c~task_00000001"])
    assert by_id["delegate:a"] > by_id["delegate:b"] > 100 * PRICE
    assert sorted(logs.values()) == pytest.approx(sorted(cost for key, cost in by_id.items() if key != "default"))


async def test_sub_agents_stop_when_the_money_of_their_parent_is_spent_and_so_does_it() -> None:
    lines = {
        GO: [calls(spawn("a", "b")), calls(hand_out(a="do a", b="do b")), done()],
        "do a": [run(f"a {n}") for n in range(50)],
        "do b": [run(f"b {n}") for n in range(50)],
    }
    async with family(lines, settings={"max_budget": 1.5}) as one:  # about fifteen answers of all together
        await one.say()
        events = await one.at_rest()
        spent = await cost(one, "c")
    assert state_of(events) is AgentState.ERROR
    text = results(events)[1]
    assert text.startswith(
        "Completed delegation of 2 tasks with 2 errors\n1. Agent a ERROR: Agent reached maximum budget"
    )
    assert 1.5 <= spent < 1.5 + 3 * 110 * PRICE
    failed = [event for event in events if isinstance(event, AgentStateChanged)][-1]
    assert "maximum budget" in failed.reason
    made = [event for event in events if isinstance(event, ActionEvent) and isinstance(event.action, DelegateAction)]
    assert len(made) == 2


async def test_an_agent_without_these_tools_has_no_sub_agents() -> None:
    async with family({GO: [calls(task("look")), done()]}, tools=["terminal"]) as one:
        assert isinstance(one.session.settings.agent, Agent)
        await one.say()
        await one.at_rest()
        assert not one.children()
