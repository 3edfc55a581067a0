"""The markers of a pause and of an interruption in the log."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from agent_core import (
    ActionEvent,
    AgentErrorEvent,
    Conversation,
    Event,
    ExecutionStatus,
    InterruptEvent,
    PauseEvent,
    get_unmatched_actions,
)
from agent_core.events.control import AgentStateChanged, ChangeAgentState
from agent_core.events.serialization import AnyEvent, from_payload, to_payload
from agent_core.runtime.action_runner import ActionRunner
from agent_core.security.confirmation import AlwaysConfirm
from tests.unit.library.playing import DONE, Sandbox, Script, agent, conversation, run

PAUSED = ExecutionStatus.PAUSED


def markers(one: Conversation) -> list[str]:
    return [event.kind for event in one.state.events if isinstance(event, PauseEvent | InterruptEvent)]


def test_a_pause_between_runs_leaves_its_marker(tmp_path: Path) -> None:
    with conversation(agent(Script(DONE)), persistence_dir=tmp_path, conversation_id="c") as one:
        one.pause()
        assert one.state.execution_status is PAUSED
        assert markers(one) == ["PauseEvent"]
        one.interrupt()
        assert markers(one) == ["PauseEvent"], "there is nothing to pause any more"
    with conversation(agent(Script(DONE)), persistence_dir=tmp_path, conversation_id="c") as again:
        assert markers(again) == ["PauseEvent"]
        assert again.state.execution_status is PAUSED
        again.send_message("Go.")
        again.run()
        assert again.state.execution_status is ExecutionStatus.FINISHED


@pytest.mark.parametrize(("way", "kind"), [("pause", "PauseEvent"), ("interrupt", "InterruptEvent")])
def test_a_run_that_is_stopped_says_how_and_goes_on(way: str, kind: str) -> None:
    sandbox = Sandbox()
    sandbox.held.clear()
    with conversation(agent(Script(run("sleep"), DONE)), workspace=sandbox) as one:

        def stop(event: Event) -> None:
            if isinstance(event, ActionEvent) and not markers(one):
                getattr(one, way)()

        one.add_callback(stop)
        one.send_message("Go.")
        one.run()
        sandbox.held.set()
        assert one.state.execution_status is PAUSED
        assert markers(one) == [kind]
        assert all("Event" not in str(message.content) for message in one.state.view.messages()[1:])
        one.run()
        assert one.state.execution_status is ExecutionStatus.FINISHED


async def test_a_cancelled_run_is_interrupted() -> None:
    script = Script(DONE)
    script_asked = asyncio.Event()
    sandbox = Sandbox()
    sandbox.held.clear()
    script.answers.insert(0, run("sleep"))
    loop = asyncio.get_running_loop()
    async with conversation(agent(script), workspace=sandbox) as one:
        one.add_callback(
            lambda event: loop.call_soon_threadsafe(script_asked.set) if isinstance(event, ActionEvent) else None
        )
        await one.asend_message("Go.")
        running = asyncio.create_task(one.arun())
        await script_asked.wait()
        running.cancel()
        await running
        sandbox.held.set()
        assert (one.state.execution_status, markers(one)) == (PAUSED, ["InterruptEvent"])


@pytest.mark.parametrize("way", ["pause", "interrupt"])
def test_an_agent_that_waits_for_its_user_is_not_paused_by_a_callback_either(way: str) -> None:
    sandbox = Sandbox()
    with conversation(agent(Script(run("rm x", risk="HIGH"), DONE)), workspace=sandbox) as one:
        waiting = threading.Event()

        def stop(event: Event) -> None:
            if isinstance(event, AgentStateChanged) and event.agent_state == "awaiting_user_confirmation":
                waiting.set()
                getattr(one, way)()

        one.add_callback(stop)
        one.set_confirmation_policy(AlwaysConfirm())
        one.send_message("Go.")
        one.run()
        assert waiting.is_set()
        assert one.state.execution_status is ExecutionStatus.WAITING_FOR_CONFIRMATION
        assert markers(one) == []
        one.run()
        assert sandbox.ran == ["rm x"]


def test_markers_are_read_back_as_what_they_are() -> None:
    for kind in (PauseEvent, InterruptEvent):
        event = kind(id=3)
        assert isinstance(event, ChangeAgentState)
        assert from_payload(to_payload(event), 3) == event
        assert (event.source, event.agent_state) == ("user", "paused")


def test_a_run_that_is_stopped_does_not_end_before_its_calls_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = ActionRunner.stopped

    async def late(runner: ActionRunner, action: ActionEvent) -> AnyEvent:
        await asyncio.sleep(0.1)
        return await answered(runner, action)

    monkeypatch.setattr(ActionRunner, "stopped", late)
    sandbox = Sandbox()
    sandbox.held.clear()
    with conversation(agent(Script(run("sleep"), DONE)), workspace=sandbox) as one:
        one.add_callback(lambda event: one.pause() if isinstance(event, ActionEvent) else None)
        one.send_message("Go.")
        one.run()
        sandbox.held.set()
        (error,) = [event for event in one.state.events if isinstance(event, AgentErrorEvent)]
        assert (error.classification, one.state.execution_status) == ("interrupted", PAUSED)
        assert get_unmatched_actions(one.state.events) == []
