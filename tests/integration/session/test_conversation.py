"""A conversation end to end: what the log holds after a task, a stop, a crash, a broken model."""

from __future__ import annotations

import asyncio
import json

import pytest

from agent_core.events.control import AgentState, AgentStateChanged, RecallObservation
from agent_core.events.llm_events import (
    ActionDecision,
    ActionEvent,
    AgentErrorEvent,
    MessageEvent,
    ObservationEvent,
    UserRejectObservation,
)
from agent_core.events.serialization import AnyEvent, from_payload
from agent_core.events.transient import OutputDelta, StatusNotice, TextDelta, TextDiscarded
from agent_core.llm.llm import LLM
from agent_core.runtime.channel.connection import SandboxConnection
from agent_core.security.analyzers import get_default_analyzer
from agent_core.security.confirmation import ConfirmRisky
from agent_core.session.agent_session import AgentSession
from agent_core.testing.model_turns import Call, Turn, say
from agent_core.tools.terminal import TerminalAction, TerminalObservation
from tests.integration.session.conftest import (
    House,
    describe,
    entered,
    events_until,
    finish,
    run,
    until_state,
    user,
    wants,
)

pytestmark = pytest.mark.docker


def outputs(events: list[AnyEvent]) -> list[str]:
    return [event.observation.text for event in events if isinstance(event, ObservationEvent)]


def answers_per_action(events: list[AnyEvent]) -> dict[int, int]:
    counts = {event.id: 0 for event in events if isinstance(event, ActionEvent)}
    for event in events:
        if isinstance(event, ObservationEvent | AgentErrorEvent | UserRejectObservation) and event.cause is not None:
            counts[event.cause] += 1
    return counts


async def test_a_task_runs_to_its_end_in_the_order_of_the_protocol(house: House) -> None:
    model = await house.model([Turn(text="Looking.", calls=(run("echo $((6*7)) > a; cat a"),)), finish("It is 42.")])
    async with house.running(model, "what is six times seven?") as session:
        events = await until_state(session, AgentState.FINISHED)
    assert [describe(event) for event in events] == [
        "state loading",
        "SystemPromptEvent (agent)",
        "MessageEvent (user)",
        "wants running",
        "RecallAction (user)",
        "state running",
        "RecallObservation (environment)",
        "ActionEvent (agent)",
        "ObservationEvent (agent)",
        "ActionEvent (agent)",
        "ObservationEvent (agent)",
        "state finished",
    ]
    assert [event.id for event in events] == list(range(12))
    result = events[8]
    assert isinstance(result, ObservationEvent)
    assert isinstance(result.observation, TerminalObservation)
    assert (result.observation.text, result.observation.exit_code) == ("42\n", 0)
    assert result.cause == events[7].id


async def test_a_fresh_conversation_without_a_message_waits_for_one(house: House) -> None:
    model = await house.model([say("hello")])
    async with house.running(model) as session:
        events = await until_state(session, AgentState.AWAITING_USER_INPUT)
    assert [describe(event) for event in events] == [
        "state loading",
        "SystemPromptEvent (agent)",
        "wants awaiting_user_input",
        "state awaiting_user_input",
    ]


async def test_a_text_answer_waits_for_the_user_and_a_second_message_goes_on(house: House) -> None:
    model = await house.model([say("Which one?"), say("Thanks.")])
    async with house.running(model, "hi") as session:
        first = await until_state(session, AgentState.AWAITING_USER_INPUT)
        await session.send(user("the blue one"))
        await until_state(session, AgentState.AWAITING_USER_INPUT, after=first[-1].id)
    roles = [message["role"] for message in model.last_request.messages]
    assert roles == ["system", "user", "assistant", "user"]


async def test_parallel_calls_are_all_answered_in_their_order(house: House) -> None:
    calls = tuple(run(f"echo {i}") for i in range(5))
    model = await house.model([Turn(calls=calls), finish()])
    async with house.running(model, "go") as session:
        events = await until_state(session, AgentState.FINISHED)
    assert outputs(events)[:5] == [f"{i}\n" for i in range(5)]
    assert set(answers_per_action(events).values()) == {1}


async def test_bad_calls_are_answered_with_errors_and_the_good_one_runs(house: House) -> None:
    bad = (Call("nope", {}), Call("terminal", "{half"), Call("terminal", {"wrong": 1}), run("echo good"))
    model = await house.model([Turn(calls=bad), finish()])
    async with house.running(model, "go") as session:
        events = await until_state(session, AgentState.FINISHED)
    errors = [event.error for event in events if isinstance(event, AgentErrorEvent)]
    assert len(errors) == 3
    assert "good\n" in outputs(events)
    assert set(answers_per_action(events).values()) == {1}
    tool_messages = [m for m in model.last_request.messages if m["role"] == "tool"]
    assert len(tool_messages) == 4


async def test_a_message_while_the_agent_runs_is_seen_by_its_next_step(house: House) -> None:
    model = await house.model([Turn(calls=(run("sleep 0.5"),)), finish()])
    async with house.running(model, "go") as session:
        await events_until(session, lambda event: isinstance(event, ActionEvent))
        await session.send(user("and be quick"))
        await until_state(session, AgentState.FINISHED)
    assert any("and be quick" in json.dumps(m.get("content")) for m in model.last_request.messages)


async def test_a_message_that_the_finish_had_not_seen_is_still_answered(house: House) -> None:
    turns = [Turn(calls=(Call("finish", {"message": "done"}),), delay=0.5), say("Oh, sorry.")]
    model = await house.model(turns)
    async with house.running(model, "go") as session:
        await events_until(session, lambda event: isinstance(event, RecallObservation))
        await session.send(user("not yet!"))
        events = await until_state(session, AgentState.AWAITING_USER_INPUT, AgentState.FINISHED)
    assert isinstance(events[-1], AgentStateChanged)
    assert events[-1].agent_state is AgentState.AWAITING_USER_INPUT


async def test_stop_ends_the_command_at_once_and_the_conversation_can_go_on(house: House) -> None:
    model = await house.model([Turn(calls=(run("sleep 1; echo begun; sleep 600"),)), finish()])
    async with house.running(model, "go") as session:
        async with session.stream.subscribe(transients=True) as live, asyncio.timeout(60):
            async for item in live:
                if isinstance(item, OutputDelta) and "begun" in item.text:
                    break
        begun = asyncio.get_running_loop().time()
        asked = await session.send(wants(AgentState.STOPPED))
        events = await events_until(session, lambda event: isinstance(event, AgentErrorEvent))
        took = asyncio.get_running_loop().time() - begun
        answer = events[-1]
        assert isinstance(answer, AgentErrorEvent)
        assert answer.error_id == "AGENT_ERROR$ERROR_ACTION_NOT_EXECUTED_STOPPED"
        assert "begun" in answer.error
        assert took < 60
        await until_state(session, AgentState.STOPPED, after=asked.id)
        await session.send(user("go on"))
        events = await until_state(session, AgentState.FINISHED, after=asked.id)
    assert set(answers_per_action(await whole(house, session.conversation_id)).values()) == {1}


async def whole(house: House, conversation_id: str) -> list[AnyEvent]:
    return [from_payload(stored.payload, stored.id) for stored in await house.store.read(conversation_id, limit=1000)]


async def test_stop_while_the_model_thinks_takes_effect_at_once_and_voids_its_text(house: House) -> None:
    model = await house.model([Turn(text="a long story " * 200, token_delay=0.05), finish()])
    async with house.running(model, "go") as session:
        async with session.stream.subscribe(transients=True) as live, asyncio.timeout(60):
            async for item in live:
                if isinstance(item, TextDelta):
                    await session.send(wants(AgentState.STOPPED))
                if isinstance(item, TextDiscarded):
                    break
        await until_state(session, AgentState.STOPPED)
        await session.send(user("go on"))
        await until_state(session, AgentState.FINISHED)


async def test_pause_and_resume_go_on_with_the_task(house: House) -> None:
    model = await house.model([Turn(calls=(run("sleep 600"),)), finish("after the pause")])
    async with house.running(model, "go") as session:
        await events_until(session, lambda event: isinstance(event, ActionEvent))
        asked = await session.send(wants(AgentState.PAUSED))
        await until_state(session, AgentState.PAUSED, after=asked.id)
        await session.send(wants(AgentState.RUNNING))
        await until_state(session, AgentState.FINISHED, after=asked.id)


async def test_the_iteration_limit_stops_the_agent_and_a_message_extends_it(house: House) -> None:
    model = await house.model(lambda request: Turn(calls=(run("true"),)))
    async with house.running(model, "go", max_iterations=3) as session:
        events = await until_state(session, AgentState.ERROR)
        failed = events[-1]
        assert isinstance(failed, AgentStateChanged)
        assert failed.reason.startswith("RuntimeError: Agent reached maximum iteration. Current iteration: 3")
        await session.send(user("go on"))
        again = await until_state(session, AgentState.ERROR, after=failed.id)
    assert sum(isinstance(event, ActionEvent) for event in again) == 3


async def test_the_budget_stops_the_agent(house: House) -> None:
    model = await house.model(lambda request: Turn(calls=(run("true"),)))
    llm = LLM(
        model="openai/scripted",
        base_url=model.url,
        api_key="k-000000",
        input_cost_per_token=0.001,
        output_cost_per_token=0.001,
    )
    async with house.running(None, "go", llm=llm, max_budget=0.01) as session:
        events = await until_state(session, AgentState.ERROR)
    failed = events[-1]
    assert isinstance(failed, AgentStateChanged)
    assert "maximum budget" in failed.reason


@pytest.mark.parametrize(
    ("turn", "reason"),
    [
        (Turn(status=401, text="bad key"), "STATUS$ERROR_LLM_AUTHENTICATION"),
        (Turn(status=500, text="oops"), "STATUS$ERROR_LLM_INTERNAL_SERVER_ERROR"),
        (Turn(status=429, text="slow down"), "CHAT_INTERFACE$AGENT_RATE_LIMITED_STOPPED_MESSAGE"),
        (Turn(text="half an ans", fault="cut"), "STATUS$ERROR_LLM_INTERNAL_SERVER_ERROR"),
        (Turn(text="x", fault="invalid_json"), "STATUS$ERROR_LLM_INTERNAL_SERVER_ERROR"),
    ],
)
async def test_a_broken_model_leads_to_a_clear_error_and_the_conversation_can_go_on(
    house: House, turn: Turn, reason: str
) -> None:
    broken = True
    model = await house.model(lambda request: turn if broken else finish())
    async with house.running(model, "go") as session:
        events = await until_state(session, AgentState.ERROR)
        failed = events[-1]
        assert isinstance(failed, AgentStateChanged)
        assert failed.reason == reason
        assert failed.detail
        assert "sk-test-key-000" not in failed.detail
        broken = False
        await session.send(user("try again"))
        await until_state(session, AgentState.FINISHED, after=failed.id)


async def test_a_model_that_recovers_is_asked_again_and_the_user_is_told(house: House) -> None:
    model = await house.model([Turn(status=429, text="slow", headers={"Retry-After": "0"}), finish()])
    async with house.running(model) as session:
        async with session.stream.subscribe(transients=True) as live, asyncio.timeout(60):
            await session.send(user("go"))
            notices = []
            async for item in live:
                if isinstance(item, StatusNotice):
                    notices.append(item.status_id)
                elif entered(AgentState.FINISHED)(item):  # type: ignore[arg-type]
                    break
        states = [
            e.agent_state.value for e in await whole(house, session.conversation_id) if isinstance(e, AgentStateChanged)
        ]
    assert "STATUS$LLM_RETRY" in notices
    assert states[-4:] == ["running", "rate_limited", "running", "finished"]


async def test_empty_replies_are_nudged_and_end_in_an_error_not_in_a_loop(house: House) -> None:
    model = await house.model(lambda request: Turn(text=""))
    async with house.running(model, "go") as session:
        events = await until_state(session, AgentState.ERROR)
    failed = events[-1]
    assert isinstance(failed, AgentStateChanged)
    assert "empty replies" in failed.reason
    assert len(model.requests) == 3


async def test_a_command_of_the_user_runs_and_is_answered(house: House) -> None:
    model = await house.model([finish()])
    async with house.running(model) as session:
        typed = ActionEvent(source="user", action=TerminalAction(command="echo mine"), tool_name="terminal")
        stored = await session.send(typed)
        events = await events_until(session, lambda event: isinstance(event, ObservationEvent))
    assert events[-1].cause == stored.id
    assert outputs(events) == ["mine\n"]
    assert not model.requests


async def test_risky_actions_wait_for_the_users_word(house: House) -> None:
    risky = run("echo launched", security_risk="HIGH")
    model = await house.model([Turn(calls=(risky,)), Turn(calls=(risky,)), finish()])
    async with house.running(model, "go", policy=ConfirmRisky(), analyzer=get_default_analyzer()) as session:
        events = await events_until(session, lambda event: isinstance(event, ActionEvent))
        assert [describe(event) for event in events[-2:]] == ["state awaiting_user_confirmation", "ActionEvent (agent)"]
        asked = await session.send(wants(AgentState.USER_CONFIRMED))
        events = await events_until(session, entered(AgentState.RUNNING), after=asked.id)
        assert [describe(event) for event in events] == [
            "ActionDecision (user)",
            "state user_confirmed",
            "ObservationEvent (agent)",
            "state running",
        ]
        decision, observation = events[0], events[2]
        assert isinstance(decision, ActionDecision)
        assert isinstance(observation, ObservationEvent)
        assert (observation.cause, observation.reissued_as) == (decision.cause, decision.id)
        await events_until(session, entered(AgentState.AWAITING_USER_CONFIRMATION), after=asked.id)
        await events_until(session, lambda event: isinstance(event, ActionEvent), after=observation.id)
        asked = await session.send(wants(AgentState.USER_REJECTED))
        events = await events_until(session, entered(AgentState.AWAITING_USER_INPUT), after=asked.id)
        assert [describe(event) for event in events] == [
            "ActionDecision (user)",
            "state user_rejected",
            "UserRejectObservation (environment)",
            "state awaiting_user_input",
        ]
        await session.send(user("then finish"))
        await until_state(session, AgentState.FINISHED, after=asked.id)


async def test_a_server_that_dies_during_a_command_gets_its_one_result_from_the_next(house: House) -> None:
    model = await house.model([Turn(calls=(run("echo x >> count; sleep 1; wc -l < count"),)), finish()])
    conversation_id = "crash" + house.instance_id
    async with house.running(model, "go", conversation_id=conversation_id) as session:
        await events_until(session, lambda event: isinstance(event, ActionEvent))
    async with house.running(model, conversation_id=conversation_id) as session:
        events = await until_state(session, AgentState.FINISHED)
    assert outputs(events)[0].strip() == "1"
    assert set(answers_per_action(events).values()) == {1}


def container_of(session: AgentSession) -> str:
    assert isinstance(session.sandbox, SandboxConnection)
    return str(session.sandbox.sandbox.state["container"])


@pytest.mark.parametrize("end", ["kill", "rm"])
async def test_a_command_whose_server_and_sandbox_died_is_never_run_again_and_the_agent_is_told(
    house: House, end: str
) -> None:
    script = [Turn(calls=(run("echo begun; echo x >> count; sleep 600"),)), Turn(calls=(run("cat count"),)), finish()]
    model = await house.model(script)
    conversation_id = f"{end}{house.instance_id}"
    async with house.running(model, "go", conversation_id=conversation_id) as session:
        async with asyncio.timeout(30), session.stream.subscribe(transients=True) as events:
            async for event in events:
                if isinstance(event, OutputDelta):
                    break
        container = container_of(session)
    words = ["rm", "--force"] if end == "rm" else ["kill"]
    ended = await asyncio.create_subprocess_exec("docker", *words, container, stdout=asyncio.subprocess.DEVNULL)
    assert await ended.wait() == 0
    async with house.running(model, conversation_id=conversation_id) as session:
        events_after = await until_state(session, AgentState.FINISHED)
    [error] = [event for event in events_after if isinstance(event, AgentErrorEvent)]
    assert "unknown whether it took effect" in error.error
    assert outputs(events_after)[0].split() == ["x"]
    assert set(answers_per_action(events_after).values()) == {1}


async def test_a_sandbox_killed_under_a_session_is_told_and_so_is_its_next_start(house: House) -> None:
    command = TerminalAction(command="echo begun; sleep 600")
    told: list[StatusNotice] = []
    async with house.running(None, llm=LLM()) as session, session.stream.subscribe(transients=True) as events:
        await session.send(ActionEvent(source="user", action=command, tool_name="terminal"))
        async with asyncio.timeout(60):
            async for event in events:
                if isinstance(event, OutputDelta):
                    container = container_of(session)
                    killing = await asyncio.create_subprocess_exec("docker", "kill", container, stdout=-3)
                    assert await killing.wait() == 0
                if isinstance(event, AgentErrorEvent):
                    assert "unknown whether it took effect" in event.error
                    again = TerminalAction(command="echo again")
                    await session.send(ActionEvent(source="user", action=again, tool_name="terminal"))
                if isinstance(event, StatusNotice):
                    told.append(event)
                if isinstance(event, ObservationEvent):
                    assert event.observation.text.strip() == "again"
                    break
        assert session.runtime_status == "STATUS$READY"
    assert [(notice.status_id, notice.level) for notice in told] == [
        ("STATUS$ERROR_RUNTIME_DISCONNECTED", "error"),
        ("STATUS$STARTING_RUNTIME", "info"),
        ("STATUS$RUNTIME_STARTED", "info"),
        ("STATUS$READY", "info"),
    ]


async def test_a_stopped_session_says_so_and_starts_again(house: House) -> None:
    model = await house.model([Turn(calls=(run("sleep 600"),)), finish()])
    session = await house.session("stop" + house.instance_id, model)
    await session.start(user("go"))
    await events_until(session, lambda event: isinstance(event, ActionEvent))
    await session.close(stopped=True, sandbox="stop")
    events = await whole(house, session.conversation_id)
    assert set(answers_per_action(events).values()) == {1}
    assert AgentState.STOPPED in [event.agent_state for event in events if isinstance(event, AgentStateChanged)]
    async with house.running(model, conversation_id=session.conversation_id) as again:
        await until_state(again, AgentState.AWAITING_USER_INPUT)
        sent = await again.send(user("again"))
        await until_state(again, AgentState.FINISHED, after=sent.id)


async def test_a_sandbox_that_is_to_be_stopped_is_kept_where_its_agent_has_just_gone_to_work(house: House) -> None:
    model = await house.model([Turn(calls=(run("sleep 1; echo went on"),)), finish()])
    session = await house.session("work" + house.instance_id, model)
    await session.start(user("go"))
    await events_until(session, lambda event: isinstance(event, ActionEvent))
    await session.close(stopped=False, sandbox="stop")
    async with house.running(model, conversation_id=session.conversation_id) as again:
        await until_state(again, AgentState.FINISHED)
    assert "went on\n" in outputs(await whole(house, session.conversation_id))


async def test_the_models_key_never_reaches_the_log(house: House) -> None:
    model = await house.model(
        [Turn(text="your key is sk-test-key-000", calls=(run("echo sk-test-key-000"),)), finish()]
    )
    async with house.running(model, "my key is sk-test-key-000") as session:
        await until_state(session, AgentState.FINISHED)
    stored = b"".join(entry.payload for entry in await house.store.read(session.conversation_id, limit=1000))
    assert b"sk-test-key-000" not in stored
    assert stored.count(b"<secret_hidden>") >= 3


async def test_the_messages_of_a_conversation_are_counted_and_priced(house: House) -> None:
    model = await house.model(
        [Turn(calls=(run("true"),), usage={"prompt_tokens": 11, "completion_tokens": 3}), finish()]
    )
    async with house.running(model, "go") as session:
        events = await until_state(session, AgentState.FINISHED)
    first = next(event for event in events if isinstance(event, ActionEvent))
    assert first.metrics is not None
    assert (first.metrics.usage.prompt_tokens, first.metrics.usage.completion_tokens) == (11, 3)
    assert isinstance(events[2], MessageEvent)
