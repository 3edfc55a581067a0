"""A conversation that is stopped while its agent works: nothing comes behind the stop, and nothing stays unanswered."""

from __future__ import annotations

import asyncio

import pytest

from agent_core.events.control import AgentState, AgentStateChanged, ChangeAgentState
from agent_core.events.llm_events import ActionEvent, AgentErrorEvent, ObservationEvent
from agent_core.events.serialization import AnyEvent, from_payload
from tests.unit.controller.stage import REPLIES, Reply, Stage
from tests.unit.controller.test_answers import is_in, until
from tests.unit.controller.test_confirmation_flow import calls
from tests.waiting import ticks

THREE_THOUGHTS: Reply = ("", [("think", '{"thought": "b"}')] * 3)


async def log_of_one_stopped(seed: int, pause: int) -> list[AnyEvent]:
    """The log of a conversation that is stopped so long after its model has answered."""
    stage = Stage(seed)
    try:
        await stage.begin()
        await stage.say()
        async with asyncio.timeout(60):
            while not stage.model.gate.open(THREE_THOUGHTS):
                await ticks(1)
        await ticks(pause)
        await stage.session.close(stopped=True)
        return [from_payload(one.payload, one.id) for one in await stage.store.read("c", limit=1000)]
    finally:
        await stage.end()


@pytest.mark.parametrize("seed", [7, 8, 9, 11])
async def test_a_stop_in_the_moment_of_an_answer_leaves_no_call_of_it_open(seed: int) -> None:
    for pause in range(5):
        log = await log_of_one_stopped(seed, pause)
        stop = next(e.id for e in log if isinstance(e, AgentStateChanged) and e.agent_state is AgentState.STOPPED)
        calls = {event.id for event in log if isinstance(event, ActionEvent)}
        assert all(call < stop for call in calls)
        assert calls == {event.cause for event in log if isinstance(event, ObservationEvent | AgentErrorEvent)}


async def test_a_conversation_that_is_stopped_already_does_not_say_it_again() -> None:
    stage = Stage()
    try:
        await stage.begin()
        await stage.session.send(ChangeAgentState(agent_state=AgentState.STOPPED))
        async with asyncio.timeout(60):
            while stage.session.agent_state is not AgentState.STOPPED:
                await ticks(1)
        await stage.session.close(stopped=True)
        log = [from_payload(one.payload, one.id) for one in await stage.store.read("c", limit=1000)]
        states = [event.agent_state for event in log if isinstance(event, AgentStateChanged)]
        assert states.count(AgentState.STOPPED) == 1
    finally:
        await stage.end()


async def test_an_agent_whose_stopped_command_nobody_can_tell_of_goes_on() -> None:
    stage = Stage()
    try:
        await stage.begin()
        await stage.say()
        async with asyncio.timeout(60):
            while not len(stage.shell):
                stage.model.gate.open(calls("wait"))
                await ticks(1)
        # What a cancelled command of the fake sandbox answers is not what the terminal expects.
        await stage.session.send(ChangeAgentState(agent_state=AgentState.PAUSED))
        async with asyncio.timeout(60):
            while not any(isinstance(event, AgentErrorEvent) for event in await stage.log()):
                await ticks(1)
        await stage.session.send(ChangeAgentState(agent_state=AgentState.RUNNING))
        events = await until(stage, is_in(AgentState.FINISHED), [calls("ls"), REPLIES["finish"]])
        stopped, ran, _ = [event for event in events if isinstance(event, AgentErrorEvent | ObservationEvent)]
        assert isinstance(stopped, AgentErrorEvent)
        assert stopped.error == "Stopped by the user while it ran."
        assert isinstance(ran, ObservationEvent)
    finally:
        await stage.end()
