"""Trajectories: recorded answers stand for the model's, results are new, then everything goes its usual way."""

from __future__ import annotations

from typing import Any

import pytest

from agent_core.controller.replay import ReplayManager, beginning_of, rounds_of, turns_of
from agent_core.events.branches import Rewind
from agent_core.events.control import AgentState, AgentStateChanged, Trajectory
from agent_core.events.llm_events import ActionEvent, AgentErrorEvent, MessageEvent, ObservationEvent
from agent_core.events.messages import Message, MessageToolCall
from agent_core.events.serialization import AnyEvent
from agent_core.security.analyzers import get_default_analyzer
from agent_core.security.confirmation import ConfirmRisky
from agent_core.tools.builtin import FinishObservation
from tests.unit.controller.stage import Stage
from tests.unit.controller.test_going_back import answer, asked, at, heard, one_call_and_a_question, staged
from tests.unit.memory.test_view import agent, call, result, user
from tests.waiting import until


def calls(*commands: str) -> Message:
    made = [
        MessageToolCall(id=f"call_{command}", name="terminal", arguments=f'{{"command": "{command}"}}')
        for command in commands
    ]
    return Message(role="assistant", tool_calls=made)


def finishes() -> Message:
    call = MessageToolCall(id="call_f", name="finish", arguments='{"message": "done"}')
    return Message(role="assistant", tool_calls=[call])


async def repeat(stage: Stage, *turns: Message) -> None:
    for event in beginning_of(turns):
        await stage.session.send(event)


async def ran(stage: Stage, count: int) -> None:
    """Let so many commands end."""
    for _ in range(count):
        await until(stage.shell.open)


def commands(stage: Stage) -> list[str]:
    return [one.args["command"] for one in stage.sandbox.runner.ran if one.op == "shell.run"]


async def test_recorded_calls_are_done_again_and_then_the_model_goes_on() -> None:
    async with staged() as stage:
        await repeat(stage, Message.user("go"), calls("a", "b"), calls("c"))
        await ran(stage, 3)
        await asked(stage, 1)
        assert commands(stage) == ["a", "b", "c"]
        assert [f"ran {name}" in heard(stage) for name in "abc"] == [True] * 3
        await answer(stage, "finish", 1)
        await at(stage, AgentState.FINISHED)


async def test_what_the_user_said_in_between_is_said_again_and_only_the_last_word_waits() -> None:
    async with staged() as stage:
        await repeat(
            stage,
            Message.user("go"),
            Message.assistant("Which?"),
            Message.user("that one"),
            calls("a"),
            finishes(),
            Message.user("more"),
            Message.assistant("Well."),
        )
        await ran(stage, 1)
        await at(stage, AgentState.AWAITING_USER_INPUT)
        log = await stage.log()
        said = [event for event in log if isinstance(event, MessageEvent)]
        assert [event.llm_message.text for event in said] == ["go", "Which?", "that one", "more", "Well."]
        assert [event.wait_for_response for event in said if event.source == "agent"] == [False, True]
        assert [
            isinstance(event.observation, FinishObservation) for event in log if isinstance(event, ObservationEvent)
        ]
        assert stage.model.prompts == []


async def test_a_replay_goes_on_after_a_restart_where_it_was() -> None:
    async with staged() as stage:
        await repeat(stage, Message.user("go"), calls("a"), calls("b"), finishes())
        await ran(stage, 1)
        await until(lambda: len(commands(stage)) == 2)
        await stage.crash()
        await stage.begin()
        await until(lambda: stage.shell.open() or stage.session.agent_state is AgentState.FINISHED)
        await at(stage, AgentState.FINISHED)
        made = [event.action for event in await stage.log() if isinstance(event, ActionEvent) and event.action]
        assert [getattr(action, "command", "finish") for action in made] == ["a", "b", "finish"]
        assert stage.model.prompts == []


async def test_recorded_calls_wait_for_confirmation_like_any_others() -> None:
    risky = MessageToolCall(id="c", name="terminal", arguments='{"command": "rm x", "security_risk": "HIGH"}')
    async with staged(policy=ConfirmRisky(), analyzer=get_default_analyzer()) as stage:
        await repeat(stage, Message.user("go"), Message(role="assistant", tool_calls=[risky]))
        await at(stage, AgentState.AWAITING_USER_CONFIRMATION)
        assert commands(stage) == []


async def test_a_call_of_a_tool_that_is_not_there_is_answered_by_an_error() -> None:
    unknown = MessageToolCall(id="c", name="teleport", arguments="{}")
    async with staged() as stage:
        await repeat(stage, Message.user("go"), Message(role="assistant", tool_calls=[unknown]))
        await asked(stage, 1)
        assert any(isinstance(event, AgentErrorEvent) for event in await stage.log())


async def test_a_conversation_can_be_repeated_from_its_log() -> None:
    async with staged() as stage:
        await one_call_and_a_question(stage)
        recorded = await stage.log()
    async with staged() as stage:
        for event in beginning_of(turns_of(ReplayManager.get_replay_events(recorded))):
            await stage.session.send(event)
        await ran(stage, 1)
        await at(stage, AgentState.AWAITING_USER_INPUT)
        again = await stage.log()
        kinds = [event.kind for event in again if event.kind in ("MessageEvent", "ActionEvent", "ObservationEvent")]
        assert kinds == ["MessageEvent", "ActionEvent", "ObservationEvent", "MessageEvent"]
        assert stage.model.prompts == []


def test_environment_results_and_what_was_undone_are_left_out_and_ids_are_cleared() -> None:
    log: list[AnyEvent] = [
        AgentStateChanged(id=0, agent_state=AgentState.RUNNING),
        user(1, "go"),
        call(2, "r", of=2),
        call(3, "r", of=2),
        result(4, 2),
        agent(5, "undone"),
        Rewind(id=6, to=4),
        agent(7, "said"),
    ]
    events = ReplayManager.get_replay_events(log)
    assert {event.id for event in events} == {-1}
    data = [event.model_dump(mode="json") for event in log]
    assert [event.kind for event in ReplayManager.get_replay_events(data)] == [event.kind for event in events]
    turns = turns_of(events)
    assert [(turn.role, turn.text, len(turn.tool_calls or [])) for turn in turns] == [
        ("user", "go", 0),
        ("assistant", "", 2),
        ("assistant", "said", 0),
    ]


@pytest.mark.parametrize(
    ("trajectory", "problem"),
    [
        (None, "trajectory: is a NoneType; give a list of events"),
        ({}, "trajectory: is a dict; give a list"),
        ("[]", "trajectory: is a str; give a list"),
        ([1], r"trajectory: entry 0 is no event \(it is int, or has no known kind\); give events, or their data"),
        (
            [MessageEvent(llm_message=Message.user("a")), {"kind": "nope"}],
            r"entry 1 is no event \(it is dict, or has no known kind",
        ),
        ([{"kind": "MessageEvent"}], r"entry 0 is no event \(its llm_message: Field required\)"),
    ],
)
def test_a_trajectory_has_to_be_a_list_of_events(trajectory: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as caught:
        ReplayManager.get_replay_events(trajectory)
    assert type(caught.value) is ValueError


def test_it_has_to_begin_with_the_user() -> None:
    with pytest.raises(ValueError, match="does not begin with a message of the user"):
        beginning_of([calls("a")])
    assert [event.kind for event in beginning_of([Message.user("go")])] == ["MessageEvent"]


def test_rounds_end_where_something_leads_on() -> None:
    turns = [
        calls("a"),
        Message.user("u"),
        Message.assistant("x"),
        Message.assistant("y"),
        Message.user("v"),
        finishes(),
    ]
    assert [len(one) for one in rounds_of(turns)] == [1, 1, 3, 1]
    manager = ReplayManager()
    assert not manager.should_replay()
    manager.observe(Trajectory(id=3, turns=turns))
    assert manager.should_replay()
