"""Going back to an event of the log: what the agent, its model and its user see of it afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agent_core.errors import NotStuckError
from agent_core.events.branches import Rewind, active_branch
from agent_core.events.control import (
    AgentState,
    ChangeAgentState,
    LoopDetected,
    LoopRecovery,
    RecallAction,
    RecallObservation,
)
from agent_core.events.event import Event
from agent_core.events.llm_events import ActionEvent, AgentErrorEvent, ObservationEvent, SystemPromptEvent
from agent_core.memory.view import View
from agent_core.security.analyzers import get_default_analyzer
from agent_core.security.confirmation import ConfirmRisky
from agent_core.skills.context import AgentContext
from agent_core.skills.skill import KeywordTrigger, Skill
from agent_core.testing.fake_sandbox import FakeAnswer, FakeRequest
from tests.unit.controller.stage import REPLIES, Gate, Stage
from tests.waiting import until

LIMIT_SECONDS = 60.0


@asynccontextmanager
async def staged(**settings: Any) -> AsyncIterator[Stage]:
    stage = Stage(settings=settings)
    await stage.begin()
    try:
        yield stage
    finally:
        await stage.end()


async def asked(stage: Stage, times: int) -> None:
    """Wait until the model was asked so often."""
    await until(lambda: len(stage.model.prompts) >= times and stage.model.asking)


async def at(stage: Stage, state: AgentState) -> None:
    await until(lambda: stage.session.is_at_rest and stage.session.agent_state is state)


async def answer(stage: Stage, reply: str, times: int) -> None:
    await asked(stage, times)
    stage.model.gate.open(REPLIES[reply])


async def first(stage: Stage, kind: type[Event], number: int = 0) -> int:
    return [event.id for event in await stage.log() if isinstance(event, kind)][number]


def heard(stage: Stage) -> str:
    return str(stage.model.prompts[-1])


async def one_call_and_a_question(stage: Stage) -> None:
    """`message 0.` → a call with its result → "Which one?"."""
    await stage.say()
    await answer(stage, "one", 1)
    await until(lambda: stage.shell.open())
    await answer(stage, "text", 2)
    await at(stage, AgentState.AWAITING_USER_INPUT)


async def test_the_model_does_not_see_what_was_undone() -> None:
    async with staged() as stage:
        await one_call_and_a_question(stage)
        call = await first(stage, ActionEvent)
        await stage.session.rewinder.rewind(call - 1)
        await at(stage, AgentState.AWAITING_USER_INPUT)
        await stage.say()
        await asked(stage, 3)
        assert "message 0." in heard(stage)
        assert "message 1." in heard(stage)
        assert "ran ls" not in heard(stage)
        assert "Which one?" not in heard(stage)


async def test_it_waits_for_its_user_and_goes_on_from_there_when_told_to() -> None:
    async with staged() as stage:
        await one_call_and_a_question(stage)
        await stage.session.rewinder.rewind(await first(stage, ObservationEvent))
        await at(stage, AgentState.AWAITING_USER_INPUT)
        assert len(stage.model.prompts) == 2
        await stage.session.send(ChangeAgentState(agent_state=AgentState.RUNNING))
        await asked(stage, 3)
        assert "ran ls" in heard(stage)
        assert "Which one?" not in heard(stage)


async def test_a_step_that_is_cancelled_while_it_reads_the_log_anew_leaves_nothing_out_of_the_next() -> None:
    async with staged() as stage:
        await one_call_and_a_question(stage)
        await stage.session.rewinder.rewind(await first(stage, ObservationEvent))
        await at(stage, AgentState.AWAITING_USER_INPUT)
        stage.store.reads = reads = Gate()
        await stage.session.send(ChangeAgentState(agent_state=AgentState.RUNNING))
        await until(lambda: len(reads) > 0)
        stage.store.reads = None
        await stage.session.send(ChangeAgentState(agent_state=AgentState.PAUSED))
        await at(stage, AgentState.PAUSED)
        await stage.session.send(ChangeAgentState(agent_state=AgentState.RUNNING))
        await asked(stage, 3)
        assert "message 0." in heard(stage)
        assert "ran ls" in heard(stage)


async def test_a_rewind_to_a_message_answers_it_only_when_the_user_wants_it() -> None:
    async with staged() as stage:
        await one_call_and_a_question(stage)
        message = next(event.id for event in await stage.log() if event.kind == "MessageEvent")
        await stage.session.rewinder.rewind(message)
        await at(stage, AgentState.AWAITING_USER_INPUT)
        await stage.crash()
        await stage.begin()
        await at(stage, AgentState.AWAITING_USER_INPUT)
        assert len(stage.model.prompts) == 2
        await stage.session.send(ChangeAgentState(agent_state=AgentState.RUNNING))
        await asked(stage, 3)
        assert "message 0." in heard(stage)


async def test_what_was_spent_stays_spent() -> None:
    async with staged() as stage:
        await one_call_and_a_question(stage)
        await stage.session.rewinder.rewind(0)
        await stage.say()
        await answer(stage, "finish", 3)
        await at(stage, AgentState.FINISHED)
        state = stage.session._state
        assert state is not None
        assert state.iterations == 3
        assert state.metrics.accumulated_cost == pytest.approx(3 * 15 * 0.01)


async def test_before_the_first_event_the_agent_is_told_everything_anew() -> None:
    async with staged() as stage:
        await one_call_and_a_question(stage)
        await stage.session.rewinder.rewind(None)
        await stage.say()
        await asked(stage, 3)
        assert "message 0." not in heard(stage)
        branch = active_branch(await stage.log())
        assert sum(isinstance(event, SystemPromptEvent) for event in branch) == 1
        assert [message["role"] for message in stage.model.prompts[-1]] == ["system", "user"]


async def test_what_waited_for_confirmation_is_dropped() -> None:
    async with staged(policy=ConfirmRisky(), analyzer=get_default_analyzer()) as stage:
        await stage.say()
        await answer(stage, "risky", 1)
        await at(stage, AgentState.AWAITING_USER_CONFIRMATION)
        call = await first(stage, ActionEvent)
        await stage.session.rewinder.rewind(call - 1)
        await at(stage, AgentState.AWAITING_USER_INPUT)
        await stage.session.send(ChangeAgentState(agent_state=AgentState.USER_CONFIRMED))
        await stage.say()
        await answer(stage, "finish", 2)
        await at(stage, AgentState.FINISHED)
        assert not any(isinstance(event, ObservationEvent) and event.cause == call for event in await stage.log())


async def test_a_rewind_right_behind_a_call_answers_it_as_interrupted() -> None:
    async with staged() as stage:
        await one_call_and_a_question(stage)
        call = await first(stage, ActionEvent)
        await stage.session.rewinder.rewind(call)
        branch = active_branch(await stage.log())
        (closed,) = [event for event in branch if isinstance(event, AgentErrorEvent)]
        assert (closed.cause, closed.classification) == (call, "interrupted")
        roles = [message.role for message in View.from_log(await stage.log()).messages()]
        assert roles == ["system", "user", "assistant", "tool"]


async def test_what_runs_is_ended_before_the_conversation_goes_back() -> None:
    async with staged() as stage:
        await stage.say()
        await answer(stage, "one", 1)
        await until(lambda: any(call.op == "shell.run" for call in stage.sandbox.runner.ran))
        await stage.session.rewinder.rewind(2)
        assert stage.sandbox.runner.cancelled
        await at(stage, AgentState.AWAITING_USER_INPUT)


async def test_a_thinking_model_is_interrupted_and_its_answer_is_not_stored() -> None:
    async with staged() as stage:
        await stage.say()
        await asked(stage, 1)
        await stage.session.rewinder.rewind(2)
        stage.model.gate.open(REPLIES["one"])
        await at(stage, AgentState.AWAITING_USER_INPUT)
        assert not any(isinstance(event, ActionEvent) for event in await stage.log())


async def test_a_rewind_can_be_taken_back_also_after_a_restart() -> None:
    async with staged() as stage:
        await one_call_and_a_question(stage)
        end = stage.session.stream.last_id
        await stage.session.rewinder.rewind(2)
        await stage.crash()
        await stage.begin()
        await stage.session.rewinder.rewind(end)
        await stage.say()
        await asked(stage, 3)
        assert "ran ls" in heard(stage)
        assert "Which one?" in heard(stage)


async def test_a_skill_that_was_told_only_on_the_undone_branch_is_told_again() -> None:
    skill = Skill(name="boats", content="Boats float.", trigger=KeywordTrigger(keywords=["message"]))
    async with staged(agent_context=AgentContext(skills=[skill])) as stage:
        await one_call_and_a_question(stage)
        await stage.session.rewinder.rewind(await first(stage, SystemPromptEvent))
        await stage.say()
        await answer(stage, "text", 3)
        await at(stage, AgentState.AWAITING_USER_INPUT)
        await stage.say()
        await asked(stage, 4)
        told = [event for event in active_branch(await stage.log()) if isinstance(event, RecallObservation)]
        assert [bool(event.microagent_knowledge) for event in told] == [True, False]


async def test_an_answer_that_was_thought_of_before_a_rewind_does_not_come_twice_behind_it() -> None:
    async with staged() as stage:
        await one_call_and_a_question(stage)
        asking, known = asyncio.Event(), asyncio.Event()

        async def slow_facts(call: FakeRequest) -> FakeAnswer:
            asking.set()
            await known.wait()
            return {"working_dir": "/workspace"}

        stage.sandbox.runner.handlers["workspace.facts"] = slow_facts
        await stage.session.rewinder.rewind(await first(stage, RecallAction))
        async with asyncio.timeout(LIMIT_SECONDS):
            await asking.wait()
        await stage.session.rewinder.rewind(await first(stage, RecallObservation))
        known.set()
        await stage.say()
        await answer(stage, "finish", 3)
        await at(stage, AgentState.FINISHED)
        branch = active_branch(await stage.log())
        asked_for = [event.id for event in branch if isinstance(event, RecallAction)]
        assert [event.cause for event in branch if isinstance(event, RecallObservation)] == asked_for


@pytest.mark.parametrize("place", [-2, 10_000, True])
async def test_a_place_that_there_is_not_is_refused_and_nothing_happens(place: int) -> None:
    async with staged() as stage:
        await one_call_and_a_question(stage)
        before = stage.session.stream.last_id
        with pytest.raises(ValueError, match="there is no event"):
            await stage.session.rewinder.rewind(place)
        assert stage.session.stream.last_id == before


async def test_a_user_can_send_it_like_any_other_event() -> None:
    async with staged() as stage:
        await one_call_and_a_question(stage)
        stored = await stage.session.send(Rewind(to=2))
        assert (stored.kind, stored.source) == ("Rewind", "user")
        assert stored.id >= 0


async def stuck(stage: Stage) -> None:
    """Let the agent do the same until that is noticed."""
    await stage.say()
    for step in range(1, 5):
        await answer(stage, "one", step)
        await until(stage.shell.open)
    await at(stage, AgentState.ERROR)


async def test_a_loop_is_told_with_its_beginning_and_can_be_undone() -> None:
    async with staged() as stage:
        await stuck(stage)
        (loop,) = [event for event in await stage.log() if isinstance(event, LoopDetected)]
        assert loop.start == await first(stage, ActionEvent)
        stored = await stage.session.send(LoopRecovery(option=1))
        assert stored.kind == "LoopRecovery"
        await at(stage, AgentState.AWAITING_USER_INPUT)
        assert not any(isinstance(event, ActionEvent) for event in active_branch(await stage.log()))
        assert len(stage.model.prompts) == 4


async def test_with_the_second_choice_the_last_message_is_said_again() -> None:
    async with staged() as stage:
        await stuck(stage)
        await stage.session.send(LoopRecovery(option=2))
        await asked(stage, 5)
        assert heard(stage).count("message 0.") == 2
        assert "ran ls" not in heard(stage)


async def test_with_the_third_choice_the_agent_is_stopped() -> None:
    async with staged() as stage:
        await stuck(stage)
        await stage.session.send(LoopRecovery(option=3))
        await at(stage, AgentState.STOPPED)
        assert any(isinstance(event, ActionEvent) for event in active_branch(await stage.log()))


async def test_an_agent_that_is_not_stuck_has_nothing_to_recover_from() -> None:
    async with staged() as stage:
        await one_call_and_a_question(stage)
        before = stage.session.stream.last_id
        with pytest.raises(NotStuckError, match="not found in a loop"):
            await stage.session.send(LoopRecovery(option=1))
        assert stage.session.stream.last_id == before
        await stage.session.rewinder.rewind(2)
        await stuck(stage)
        await stage.say()
        await asked(stage, 7)
        with pytest.raises(NotStuckError):
            await stage.session.send(LoopRecovery(option=1))
