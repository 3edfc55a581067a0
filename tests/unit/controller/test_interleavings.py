"""Whatever happens to a conversation in whatever order, its log keeps its promises."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agent_core.controller.state import ControllerState, Limits
from agent_core.errors import EventStoreError
from agent_core.events.branches import FilesRestored, Rewind, active_branch
from agent_core.events.control import AgentState, AgentStateChanged, ChangeAgentState, RecallAction, RecallObservation
from agent_core.events.llm_events import (
    ActionEvent,
    AgentErrorEvent,
    MessageEvent,
    ObservationEvent,
    UserRejectObservation,
)
from agent_core.events.serialization import AnyEvent
from agent_core.security.analyzers import get_default_analyzer
from agent_core.security.confirmation import ConfirmRisky, NeverConfirm
from tests.unit.controller.stage import REPLIES, Stage
from tests.waiting import ticks

WISHES = {
    "pause": AgentState.PAUSED,
    "resume": AgentState.RUNNING,
    "stop": AgentState.STOPPED,
    "wait": AgentState.AWAITING_USER_INPUT,
    "confirm": AgentState.USER_CONFIRMED,
    "reject": AgentState.USER_REJECTED,
}
DEEDS = st.one_of(
    st.just("say"),
    st.sampled_from(sorted(WISHES)),
    st.sampled_from(sorted(REPLIES)).map(lambda name: f"model: {name}"),
    st.sampled_from(["shell", "shell", "model: fails", "crash", "full disk"]),
)
LIMIT_SECONDS = 60.0


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_core.controller.agent_controller.STORE_RETRY_SECONDS", 0.003)
    monkeypatch.setattr("agent_core.memory.memory.STORE_RETRIES", (0.001, 0.003))
    monkeypatch.setattr("agent_core.runtime.runtime.FIRST_STORE_RETRIES", (0.001, 0.003))


async def play(deeds: list[tuple[str, int]], seed: int, *, asks: bool) -> tuple[Stage, list[AnyEvent]]:
    stage = Stage(
        seed,
        {"policy": ConfirmRisky() if asks else NeverConfirm(), "analyzer": get_default_analyzer(), "max_iterations": 5},
    )
    await stage.begin()
    for deed, pause in deeds:
        with suppress(EventStoreError):  # the user is told that it was not taken
            await act(stage, deed)
        await ticks(pause)
    stage.store.failures = 0
    await settle(stage)
    return stage, await stage.log()


async def act(stage: Stage, deed: str) -> None:
    if deed == "say":
        await stage.say()
    elif deed in WISHES:
        await stage.session.send(ChangeAgentState(agent_state=WISHES[deed]))
    elif deed == "shell":
        stage.shell.open()
    elif deed == "crash":
        stage.store.failures = 0
        await stage.crash()
        await stage.begin()
    elif deed == "full disk":
        stage.store.failures = 2
    elif deed.startswith("rewind"):
        place = stage.session.stream.last_id * int(deed.split()[1]) // 10
        await stage.session.rewinder.rewind(place)
    else:
        stage.model.gate.open(REPLIES.get(deed.removeprefix("model: ")))


async def settle(stage: Stage) -> None:
    """Say a last word, and let everything go on until the agent has finished with all of it."""
    async with asyncio.timeout(LIMIT_SECONDS):
        await stage.say()
        while True:
            stage.shell.open()
            stage.model.gate.open(REPLIES["finish"])
            await ticks(5)
            session = stage.session
            if session.agent_state is AgentState.FINISHED and stage.model.asking == 0:
                live = session._state
                if live is not None and live.last_event_id == session.stream.last_id and not live.unrecalled:
                    return
            if session.agent_state is AgentState.ERROR:
                await session.send(ChangeAgentState(agent_state=AgentState.RUNNING))
                await ticks(20)
            if session.agent_state is AgentState.AWAITING_USER_CONFIRMATION:
                await session.send(ChangeAgentState(agent_state=AgentState.USER_CONFIRMED))
                await ticks(20)
            await asyncio.sleep(0.001)


def live_state(stage: Stage) -> ControllerState:
    state = stage.session._state
    assert state is not None
    return state


def entered(events: list[AnyEvent]) -> list[AgentState]:
    return [event.agent_state for event in events if isinstance(event, AgentStateChanged)]


def check(stage: Stage, log: list[AnyEvent]) -> None:
    events = active_branch(log)
    kinds = (ObservationEvent, AgentErrorEvent, UserRejectObservation)
    answers = [event.cause for event in events if isinstance(event, kinds) and event.cause is not None]
    assert sorted(answers) == sorted(event.id for event in events if isinstance(event, ActionEvent))
    recalled = [event.cause for event in events if isinstance(event, RecallObservation)]
    assert sorted(recalled) == sorted(event.id for event in events if isinstance(event, RecallAction))
    restored = [event.cause for event in log if isinstance(event, FilesRestored)]
    assert len(restored) == len(set(restored))
    assert set(restored) <= {event.id for event in log if isinstance(event, Rewind) and event.restores}
    # Loading again may come to the same state; apart from that a state is entered only from another one.
    if not any(isinstance(event, Rewind) for event in log):
        assert all(one is not other for one, other in pairwise(entered(events)) if one is not AgentState.LOADING)
    assert stage.model.most_at_once <= 1
    heard = "\n".join(text for message in stage.model.prompts[-1] for text in texts(message.get("content")))
    shown = "\n".join(event.llm_message.text for event in events if isinstance(event, MessageEvent))
    positions = [heard.find(said) for said in stage.said if said in shown]
    assert not any(said in heard for said in stage.said if said not in shown)
    assert -1 not in positions
    assert positions == sorted(positions)
    folded, whole = ControllerState(Limits(max_iterations=5)), ControllerState(Limits(max_iterations=5))
    for event in events:
        folded.fold(event)
    for event in log:
        whole.fold(event)
    folded.keep(whole)
    assert folded == live_state(stage)


def texts(content: object) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in content or ()] if isinstance(content, list) else []


def play_and_check(deeds: list[tuple[str, int]], seed: int, *, asks: bool) -> None:
    async def scenario() -> None:
        stage, events = await play(deeds, seed, asks=asks)
        check(stage, events)
        await stage.end()

    asyncio.run(scenario())


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(DEEDS, st.integers(0, 25)), max_size=14), st.integers(0, 1000), st.booleans())
@example([("say", 0), ("say", 15), ("model: bad", 8), ("full disk", 0), ("say", 4)], 0, False)
@example([("say", 0), ("confirm", 1), ("confirm", 0), ("model: mixed", 1)], 544, False)
def test_every_action_and_every_message_is_answered_once_whatever_happens_in_between(
    deeds: list[tuple[str, int]], seed: int, asks: bool
) -> None:
    play_and_check(deeds, seed, asks=asks)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(DEEDS | st.integers(0, 10).map(lambda part: f"rewind {part}"), st.integers(0, 25)), max_size=14),
    st.integers(0, 1000),
    st.booleans(),
)
def test_every_promise_holds_on_the_branch_that_counts_however_often_the_conversation_is_taken_back(
    deeds: list[tuple[str, int]], seed: int, asks: bool
) -> None:
    play_and_check(deeds, seed, asks=asks)
