"""A conversation taken step by step."""

from __future__ import annotations

import threading

import pytest

from agent_core import ConversationRunError, Event, ExecutionStatus, Tool
from agent_core.agent.agent import Agent
from agent_core.agent.codeact import CodeActAgent
from agent_core.events.llm_events import ActionEvent, ObservationEvent
from agent_core.events.transient import TextDelta
from agent_core.security.analyzer import LLMSecurityAnalyzer
from agent_core.security.confirmation import ConfirmRisky
from agent_core.skills.context import AgentContext
from tests.unit.library.playing import DONE, Said, Sandbox, Script, agent, conversation, model, run

PAUSED, FINISHED = ExecutionStatus.PAUSED, ExecutionStatus.FINISHED
TWO: Said = ("Both.", [*run("a")[1], *run("b")[1]])


def test_a_step_asks_the_model_once_and_runs_its_calls() -> None:
    sandbox, script = Sandbox(), Script(TWO, run("c"), DONE)
    who = agent(script)
    heard: list[Event] = []
    with conversation(who, workspace=sandbox) as one:
        one.send_message("Go.")
        who.step(one, heard.append)
        assert (len(script.requests), sandbox.ran) == (1, ["a", "b"])
        assert one.state.execution_status is PAUSED
        assert [event.kind for event in heard if isinstance(event, ActionEvent | ObservationEvent)] == [
            "ActionEvent",
            "ActionEvent",
            "ObservationEvent",
            "ObservationEvent",
        ]
        before = len(heard)
        one.step()
        assert (len(script.requests), sandbox.ran) == (2, ["a", "b", "c"])
        assert len(heard) == before
        who.step(one, heard.append)
        assert one.state.execution_status is FINISHED
        assert len(heard) > before
        one.step()
        assert len(script.requests) == 3


def test_a_run_goes_on_from_a_step_and_tokens_are_heard_during_theirs_only() -> None:
    script = Script(("I look.", run("a")[1]), ("Once more.", run("b")[1]), ("That is all.", DONE[1]))
    told: list[TextDelta] = []
    with conversation(agent(script)) as one:
        one.send_message("Go.")
        one.agent.step(one, None, told.append)
        assert "".join(delta.text for delta in told if delta.channel == "message") == "I look."
        one.run()
        assert one.state.execution_status is FINISHED
        assert "".join(delta.text for delta in told if delta.channel == "message") == "I look."
        assert len(script.requests) == 3


async def test_an_asynchronous_program_steps_too() -> None:
    heard: list[Event] = []
    async with conversation(agent(Script(run("a"), DONE))) as one:
        await one.asend_message("Go.")
        await one.astep(heard.append)
        assert heard
        assert one.state.execution_status is PAUSED
        await one.astep()
        assert one.state.execution_status is FINISHED


def test_what_waits_for_the_user_is_run_by_the_next_step_and_the_model_is_not_asked() -> None:
    sandbox, script = Sandbox(), Script(run("rm x", risk="HIGH"), DONE)
    with conversation(agent(script), workspace=sandbox) as one:
        one.set_security_analyzer(LLMSecurityAnalyzer())
        one.set_confirmation_policy(ConfirmRisky())
        one.send_message("Go.")
        one.step()
        assert one.state.execution_status is ExecutionStatus.WAITING_FOR_CONFIRMATION
        assert sandbox.ran == []
        one.step()
        assert sandbox.ran == ["rm x"]


def test_a_message_during_a_step_waits_for_the_next_one() -> None:
    sandbox, script = Sandbox(), Script(run("a"), DONE)
    sandbox.held.clear()
    with conversation(agent(script), workspace=sandbox) as one:
        one.send_message("Go.")
        stepping = threading.Thread(target=one.step)
        stepping.start()
        script.asked.wait(60)
        one.send_message("And this.")
        sandbox.held.set()
        stepping.join(60)
        assert not stepping.is_alive()
        assert len(script.requests) == 1
        one.step()
        assert "And this." in script.prompt()
        assert one.state.execution_status is FINISHED


def test_a_step_that_fails_says_why() -> None:
    error = ValueError("no model")
    with conversation(agent(Script(error, DONE))) as one:
        one.send_message("Go.")
        with pytest.raises(ConversationRunError) as caught:
            one.step()
        assert caught.value.__cause__ is error
        one.step()
        assert one.state.execution_status is FINISHED


def test_an_agent_steps_in_its_own_conversation_only() -> None:
    script = Script(DONE)
    with conversation(agent(script, agent_context=AgentContext(load_memory=True))) as one:
        with pytest.raises(ValueError, match="its agent is another Agent; step that one"):
            Agent(llm=model(script), tools=[Tool(name="think")], include_default_tools=[]).step(one)
        with pytest.raises(ValueError, match="its agent is another Agent"):
            CodeActAgent(llm=model(script)).step(one)
        one.send_message("Go.")
        agent(script).step(one)
        assert one.state.execution_status is FINISHED
