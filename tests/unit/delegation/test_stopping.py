"""Stops and crashes: they reach the sub-agents, no command runs twice, and each call is answered once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from agent_core.controller.usage import metrics_of
from agent_core.events.control import AgentState
from agent_core.events.llm_events import ActionEvent, AgentErrorEvent, ObservationEvent, UserRejectObservation
from agent_core.events.serialization import AnyEvent
from agent_core.events.transient import OutputDelta
from agent_core.skills.agent_catalog import AgentDefinition, register_agent_definition, unregister_agent
from agent_core.testing.model_turns import Turn, calls
from tests.unit.delegation.family import (
    GO,
    PRICE,
    Family,
    done,
    family,
    hand_out,
    results,
    run,
    spawn,
    state_of,
    task,
)

ANSWER = 200 * PRICE
"""More than any answer of the model costs."""

WAITING = {
    GO: [calls(spawn("a", "b")), calls(hand_out(a="do a", b="do b")), done()],
    "do a": [run("wait a"), done("a is done")],
    "do b": [run("wait b"), done("b is done")],
}


def answers(events: list[AnyEvent]) -> dict[int, int]:
    """How often each action was answered."""
    given = [
        event.cause
        for event in events
        if isinstance(event, ObservationEvent | AgentErrorEvent | UserRejectObservation) and event.cause is not None
    ]
    return {event.id: Counter(given)[event.id] for event in events if isinstance(event, ActionEvent)}


async def cost(one: Family, conversation_id: str, usage_id: str = "") -> float:
    """What a conversation has cost by its own log."""
    known = [snapshot for event in await one.log(conversation_id) if (snapshot := metrics_of(event)) is not None]
    if not known:  # it was stopped before its model had said anything
        return 0.0
    found = known[-1]
    return (found.by_usage_id[usage_id] if usage_id else found).accumulated_cost


async def check_what_was_paid(one: Family, *, crashes: int) -> None:
    """The conversation's cost is its own and its sub-agents'.

    An answer counts above at once: of one that a crash came upon, the sub-agent's own log may know nothing.
    """
    logged = await cost(one, "c", "default")
    for child in one.children():
        logged += await cost(one, child)
    lost = await cost(one, "c") - logged
    assert -PRICE / 2 < lost < crashes * ANSWER + PRICE / 2


async def all_answered_once(one: Family) -> bool:
    logs = [await one.log(name) for name in ("c", *one.children())]
    return all(count == 1 for log in logs for count in answers(log).values())


@pytest.mark.parametrize("state", [AgentState.STOPPED, AgentState.PAUSED])
async def test_a_stop_ends_the_commands_of_all_sub_agents_and_every_call_is_answered(state: AgentState) -> None:
    async with family(WAITING) as one:
        await one.say()
        await one.began("wait a", "wait b")
        await one.ask_for(state)
        events = await one.until(lambda events: state_of(events) is state and 0 not in answers(events).values())
        assert sorted(one.interrupted) == ["wait a", "wait b"]
        assert await all_answered_once(one)
        for child in one.children():
            assert state_of(await one.log(child)) is AgentState.PAUSED
    (stopped,) = [event for event in events if isinstance(event, AgentErrorEvent)]
    assert stopped.classification == "interrupted"
    assert "The sub-agents were stopped, too (a, b)" in stopped.error


async def test_a_stop_ends_the_answers_that_the_models_of_sub_agents_are_giving() -> None:
    lines = {GO: [calls(task("think")), done()], "think": [Turn(text="Well", fault="hang")]}
    async with family(lines) as one:
        await one.say()
        await one.until(lambda _: bool(one.requests_of("think")))
        await one.ask_for(AgentState.STOPPED)
        async with asyncio.timeout(60):
            await one.server.stream_dropped.wait()
        await one.until(lambda events: state_of(events) is AgentState.STOPPED and 0 not in answers(events).values())


async def test_a_paused_task_goes_on_when_it_is_resumed() -> None:
    lines = {
        GO: [calls(task("look")), calls(task("go on", resume="task_00000001")), done()],
        "look": [run("wait"), done("seen")],
    }
    async with family(lines) as one:
        await one.say()
        await one.began("wait")
        await one.ask_for(AgentState.PAUSED)
        await one.until(lambda events: state_of(events) is AgentState.PAUSED and 0 not in answers(events).values())
        await one.ask_for(AgentState.RUNNING)
        events = await one.at_rest()
    (stopped,) = [event for event in events if isinstance(event, AgentErrorEvent)]
    assert "The sub-agent of task_00000001 was stopped, too" in stopped.error
    assert results(events) == ["Task ID: task_00000001\nSubagent: general-purpose\nStatus: completed\n\nseen"]


async def test_a_stop_reaches_the_sub_agents_of_sub_agents() -> None:
    register_agent_definition(AgentDefinition(name="test-asking", tools=["task_tool_set"]))
    lines = {
        GO: [calls(task("ask", subagent_type="test-asking")), done()],
        "ask": [calls(task("do it")), done()],
        "do it": [run("wait deep down"), done()],
    }
    try:
        async with family(lines) as one:
            await one.say()
            await one.began("wait deep down")
            await one.ask_for(AgentState.STOPPED)
            await one.until(lambda events: state_of(events) is AgentState.STOPPED and 0 not in answers(events).values())
            assert one.interrupted == ["wait deep down"]
            assert await all_answered_once(one)
            sessions = [session for session, _ in one.commands]
    finally:
        unregister_agent("test-asking")
    assert sessions == ["task_00000001:task_00000001:default"]


async def test_a_rewind_stops_the_sub_agents_and_they_are_gone_with_what_it_undoes() -> None:
    async with family(WAITING) as one:
        await one.say()
        await one.began("wait a", "wait b")
        (first, *_) = [event.id for event in await one.log() if isinstance(event, ActionEvent)]
        await one.session.rewinder.rewind(first - 1)
        assert sorted(one.interrupted) == ["wait a", "wait b"]
        for child in one.children():
            assert state_of(await one.log(child)) is AgentState.PAUSED


async def test_what_the_user_says_meanwhile_is_taken_up_when_they_have_reported() -> None:
    async with family(WAITING) as one:
        await one.say()
        await one.began("wait a", "wait b")
        await one.say("Hurry up.")
        await one.until(lambda events: events[-1].kind == "RecallObservation")
        assert len(one.requests_of(GO)) == 2
        one.released.set()
        await one.at_rest()
        (*_, last) = one.requests_of(GO)
    assert [message["role"] for message in last.messages][-2:] == ["tool", "user"]
    assert "Hurry up." in str(last.messages[-1])


async def test_people_are_shown_what_sub_agents_do_while_they_do_it() -> None:
    shown = ""
    async with family(WAITING) as one, one.session.stream.subscribe(transients=True) as live:
        await one.say()
        async with asyncio.timeout(60):
            async for notice in live:
                if isinstance(notice, OutputDelta):
                    shown += notice.text
                if "wait a" in shown and "wait b" in shown:
                    break
        actions = [event.id for event in await one.log() if isinstance(event, ActionEvent)]
        assert isinstance(notice, OutputDelta)
        assert notice.cause == actions[-1]
    assert sorted(shown.splitlines()) == [
        '[a] terminal: {"command": "wait a"}',
        '[b] terminal: {"command": "wait b"}',
    ]


@pytest.mark.parametrize("released", [True, False])
async def test_after_a_crash_the_call_is_answered_once_and_no_command_runs_twice(released: bool) -> None:
    async with family(WAITING) as one:
        await one.say()
        await one.began("wait a", "wait b")
        await one.crash()
        if released:  # they end while nobody is there
            one.released.set()
        await one.begin()
        one.released.set()
        events = await one.at_rest()
        assert await all_answered_once(one)
        asked = [event for child in one.children() for event in await one.log(child) if event.kind == "MessageEvent"]
    assert [event.source for event in asked] == ["user", "user"]
    assert results(events)[1] == "Completed delegation of 2 tasks\n1. Agent a: a is done\n2. Agent b: b is done"
    assert sorted(command for _, command in one.commands) == ["wait a", "wait b"]
    assert not one.interrupted
    assert len(one.children()) == 2


async def test_a_task_goes_on_in_its_shell_after_a_crash() -> None:
    lines = {GO: [calls(task("look")), done()], "look": [run("wait"), done("seen")]}
    async with family(lines) as one:
        await one.say()
        await one.began("wait")
        await one.crash()
        assert not one.killed
        await one.begin()
        one.released.set()
        events = await one.at_rest()
        assert await all_answered_once(one)
    assert results(events) == ["Task ID: task_00000001\nSubagent: general-purpose\nStatus: completed\n\nseen"]
    assert [command for _, command in one.commands] == ["wait"]
    assert one.killed == ["task_00000001:default"]


async def test_sub_agents_that_had_ended_before_a_crash_are_not_asked_again() -> None:
    lines = {
        GO: [calls(spawn("a", "b")), calls(hand_out(a="do a", b="do b")), done()],
        "do a": [done("a is done")],
        "do b": [run("wait b"), done("b is done")],
    }
    async with family(lines) as one:
        await one.say()
        await one.began("wait b")
        child_of_a = "c~" + next(name for name in (c.partition("~")[2] for c in one.children()) if name.endswith("-1"))
        await one.until(lambda events: state_of(events) is AgentState.FINISHED, child_of_a)
        await one.crash()
        await one.begin()
        one.released.set()
        events = await one.at_rest()
        asked = len(one.requests_of("do a"))
    assert asked == 1
    assert results(events)[1] == "Completed delegation of 2 tasks\n1. Agent a: a is done\n2. Agent b: b is done"


async def test_after_a_crash_and_a_stop_nothing_is_begun_again() -> None:
    async with family(WAITING) as one:
        await one.say()
        await one.began("wait a", "wait b")
        await one.crash()
        await one.begin_with(AgentState.STOPPED)
        events = await one.until(lambda events: 0 not in answers(events).values())
        assert state_of(events) is not AgentState.RUNNING
    assert sorted(command for _, command in one.commands) == ["wait a", "wait b"]


@pytest.mark.parametrize("crashes", range(1, 9))
async def test_wherever_a_crash_comes_the_outcome_is_the_same(crashes: int) -> None:
    """A crash at each of so many moments: the log's length tells where."""
    lines = {
        GO: [calls(spawn("a", "b")), calls(hand_out(a="do a", b="do b")), calls(task("look")), done("all")],
        "do a": [run("one"), run("two"), done("a is done")],
        "do b": [done("b is done")],
        "look": [run("three"), done("seen")],
    }
    async with family(lines) as one:
        await one.say()
        for moment in range(crashes):
            length = 8 + 3 * moment
            events = await one.until(
                lambda events: len(events) > length or state_of(events) is AgentState.FINISHED  # noqa: B023
            )
            if state_of(events) is AgentState.FINISHED:
                break
            await one.crash()
            await one.begin()
        events = await one.at_rest()
        assert await all_answered_once(one)
        await check_what_was_paid(one, crashes=crashes)
    assert results(events)[1:] == [
        "Completed delegation of 2 tasks\n1. Agent a: a is done\n2. Agent b: b is done",
        "Task ID: task_00000001\nSubagent: general-purpose\nStatus: completed\n\nseen",
    ]
    assert Counter(command for _, command in one.commands) == {"one": 1, "two": 1, "three": 1}


@pytest.mark.parametrize("seed", range(8))
async def test_whatever_comes_between_no_command_runs_twice_and_nothing_stays_open(seed: int) -> None:
    """Crashes and pauses at random moments of the log, in any order."""
    rng = random.Random(seed)
    lines = {
        GO: [
            calls(spawn("a", "b", "c")),
            calls(hand_out(a="do a", b="do b", c="do c")),
            calls(task("look")),
            calls(hand_out(a="and more")),
            done(),
        ],
        "do a": [run("a 1"), run("a 2"), done("a is done"), run("a 3"), done("a is done again")],
        "do b": [run("b 1"), done("b is done")],
        "do c": [done("c is done")],
        "look": [run("look 1"), run("look 2"), done("seen")],
    }
    async with family(lines) as one:
        await one.say()
        length = 5
        crashes = 0
        for _ in range(6):
            length += rng.randrange(1, 7)
            await one.until(lambda events: len(events) >= length or state_of(events) is AgentState.FINISHED)  # noqa: B023
            if rng.random() < 0.5:
                crashes += 1
                await one.crash()
                await one.begin()
            else:
                await one.ask_for(AgentState.PAUSED)
                await one.until(lambda events: state_of(events) in (AgentState.PAUSED, AgentState.FINISHED))
                await one.ask_for(AgentState.RUNNING)
        await one.at_rest()
        assert await all_answered_once(one)
        await check_what_was_paid(one, crashes=crashes)
    ran = Counter(command for _, command in one.commands)
    assert set(ran.values()) <= {1}, ran
