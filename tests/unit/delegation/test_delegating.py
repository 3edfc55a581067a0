"""Sub-agents at work: in parallel, each in a conversation of its own, in the workspace of the one that asks."""

from __future__ import annotations

import pytest

from agent_core.events.llm_events import MessageEvent, ObservationEvent, SystemPromptEvent
from agent_core.testing.model_turns import calls, say
from agent_core.tools.delegate import DelegateObservation, TaskObservation
from agent_core.troubles import Trouble
from tests.unit.delegation.family import GO, done, family, hand_out, results, run, spawn, task


async def test_sub_agents_work_at_the_same_time_and_report_in_the_order_of_the_tasks() -> None:
    lines = {
        GO: [calls(spawn("a", "b")), calls(hand_out(b="do b", a="do a")), done()],
        "do a": [run("wait a"), done("a is done")],
        "do b": [run("wait b"), say("b is done")],
    }
    async with family(lines) as one:
        await one.say()
        await one.began("wait a", "wait b")  # both before either can end
        one.released.set()
        events = await one.at_rest()
    assert results(events)[1] == "Completed delegation of 2 tasks\n1. Agent b: b is done\n2. Agent a: a is done"
    assert len({session for session, _ in one.commands}) == 2
    assert "default" not in {session for session, _ in one.commands}


async def test_each_sub_agent_has_a_log_below_that_of_its_parent_and_shares_its_sandbox() -> None:
    lines = {
        GO: [calls(spawn("a")), calls(hand_out(a="do a")), done()],
        "do a": [run("ls"), done("found it")],
    }
    async with family(lines) as one:
        await one.say()
        await one.at_rest()
        (child,) = one.children()
        log = await one.log(child)
    assert child.startswith("c~delegate-")
    assert isinstance(log[1], SystemPromptEvent)
    assert [event.llm_message.text for event in log if isinstance(event, MessageEvent) and event.source == "user"] == [
        "do a"
    ]
    assert one.sandbox.starts == 1


async def test_a_sub_agent_remembers_its_earlier_tasks() -> None:
    lines = {
        GO: [calls(spawn("a")), calls(hand_out(a="first")), calls(hand_out(a="second")), done()],
        "first": [done("one"), done("two")],
    }
    async with family(lines) as one:
        await one.say()
        events = await one.at_rest()
    assert results(events)[1:] == [
        "Completed delegation of 1 tasks\n1. Agent a: one",
        "Completed delegation of 1 tasks\n1. Agent a: two",
    ]
    assert "second" in str(one.requests_of("first")[-1].messages)


async def test_a_used_id_gets_a_new_sub_agent_and_the_old_ones_shell_is_ended() -> None:
    lines = {
        GO: [
            calls(spawn("a")),
            calls(hand_out(a="first")),
            calls(spawn("a")),
            calls(hand_out(a="second")),
            done(),
        ],
        "first": [done("one")],
        "second": [done("two")],
    }
    async with family(lines) as one:
        await one.say()
        await one.at_rest()
        children = one.children()
        first = min(children, key=lambda child: int(child.split("-")[1]))
    assert len(children) == 2
    assert one.killed == [f"{first.partition('~')[2]}:default"]


async def test_a_task_says_its_id_and_status_and_can_be_resumed_under_it() -> None:
    lines = {
        GO: [calls(task("look")), calls(task("look again", resume="task_00000001")), calls(task("other")), done()],
        "look": [done("seen"), done("seen twice")],
        "other": [done("else")],
    }
    async with family(lines) as one:
        await one.say()
        events = await one.at_rest()
        children = one.children()
    head = "Task ID: {}\nSubagent: general-purpose\nStatus: completed\n\n{}"
    assert results(events) == [
        head.format("task_00000001", "seen"),
        head.format("task_00000001", "seen twice"),
        head.format("task_00000002", "else"),
    ]
    assert children == ["c~task_00000001", "c~task_00000002"]


async def test_the_result_is_the_last_message_where_a_sub_agent_does_not_finish_by_a_call() -> None:
    lines = {GO: [calls(task("look")), done()], "look": [run("ls"), say("It is in the file.")]}
    async with family(lines) as one:
        await one.say()
        events = await one.at_rest()
    (seen,) = [
        event.observation
        for event in events
        if isinstance(event, ObservationEvent) and isinstance(event.observation, TaskObservation)
    ]
    assert (seen.status, seen.result, seen.is_error) == ("completed", "It is in the file.", False)


async def test_a_failed_sub_agent_is_an_error_among_the_results_of_the_others(caplog: pytest.LogCaptureFixture) -> None:
    lines = {
        GO: [calls(spawn("a", "b")), calls(hand_out(a="do a", b="do b")), done()],
        "do a": [run("ls")],
        "do b": [done("b is done")],
    }
    async with family(lines, settings={"max_iterations": 8}) as one:
        await one.say()
        events = await one.at_rest()
    head, first, second = results(events)[1].split("\n")
    assert head == "Completed delegation of 2 tasks with 1 errors"
    assert first.startswith("1. Agent a ERROR: ")
    assert second == "2. Agent b: b is done"
    (seen,) = [
        event.observation
        for event in events
        if isinstance(event, ObservationEvent)
        and isinstance(event.observation, DelegateObservation)
        and event.observation.command == "delegate"
    ]
    assert seen.failed == ["a"]
    said = [(one.code, one.conversation_id) for one in caplog.records if hasattr(one, "code")]  # type: ignore[attr-defined]
    assert [(code, log.split("~")[0]) for code, log in said] == [(Trouble.SUBAGENT_FAILED, "c")]
