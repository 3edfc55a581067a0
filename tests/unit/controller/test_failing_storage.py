"""Storage that fails under an agent: it stops in a state, told once, or goes on; what its user asked for is done."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from agent_core.controller.agent_controller import AgentController
from agent_core.errors import DISK_FULL, EventStoreError
from agent_core.events.branches import Rewind
from agent_core.events.control import (
    AgentState,
    AgentStateChanged,
    ChangeAgentState,
    ConversationError,
    SkillLeftOut,
)
from agent_core.events.llm_events import ActionEvent, AgentErrorEvent, MessageEvent, ObservationEvent
from agent_core.events.messages import Message
from agent_core.events.serialization import AnyEvent
from agent_core.events.store import NewEvent, StoredEvent
from tests.unit.controller.stage import REPLIES, LateStore, Stage
from tests.waiting import until

LONG = "x" * 200_000
"""More than a stream keeps in memory for its readers."""


class Disk:
    """The disk of a stage: it refuses what `refuses` says, `times` often, and reads nothing while it `is_damaged`."""

    def __init__(self, store: LateStore) -> None:
        self.refuses: Callable[[NewEvent], bool] = lambda _: False
        self.times = 1
        self.is_damaged = False
        self.stored: Callable[[NewEvent], None] = lambda _: None
        self._append, self._read = store.append, store.read
        store.append, store.read = self.append, self.read  # type: ignore[method-assign]

    async def append(self, conversation_id: str, events: Sequence[NewEvent], *, epoch: int = 0) -> int:
        if self.times and any(map(self.refuses, events)):
            self.times -= 1
            raise EventStoreError("the disk is full", code=DISK_FULL)
        first = await self._append(conversation_id, events, epoch=epoch)
        for event in events:
            self.stored(event)
        return first

    async def read(self, conversation_id: str, *, after: int = -1, limit: int = 100) -> list[StoredEvent]:
        if self.is_damaged:
            raise EventStoreError("the database file is damaged")
        return await self._read(conversation_id, after=after, limit=limit)


@pytest.fixture
async def stage(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    monkeypatch.setattr("agent_core.controller.agent_controller.STORE_RETRY_SECONDS", 0.01)
    stage = Stage()
    await stage.begin()
    yield stage
    await stage.end()


async def asked(stage: Stage) -> None:
    """Say something; returns when the model is asked."""
    await stage.say()
    await until(lambda: len(stage.model.gate))


def wish(state: AgentState) -> Callable[[NewEvent], bool]:
    return lambda event: event.kind == "AgentStateChanged" and f'"{state.value}"'.encode() in event.payload


@pytest.mark.parametrize("state", [AgentState.PAUSED, AgentState.STOPPED, AgentState.AWAITING_USER_INPUT])
async def test_a_wish_of_the_user_that_cannot_be_fulfilled_for_now_is_fulfilled_later(
    state: AgentState, stage: Stage
) -> None:
    await asked(stage)
    Disk(stage.store).refuses = wish(state)
    await stage.session.send(ChangeAgentState(agent_state=state))
    await until(lambda: stage.session.agent_state is state)
    assert not stage.model.asking, "what the model was asked was ended, and it is asked no more"


async def test_an_agent_goes_on_when_a_rewind_cannot_be_stored(stage: Stage) -> None:
    await asked(stage)
    Disk(stage.store).refuses = lambda event: event.kind == "Rewind"
    with pytest.raises(EventStoreError, match="full"):
        await stage.session.rewinder.rewind(0)
    await until(lambda: stage.model.asking)
    stage.model.gate.open(REPLIES["finish"])
    await until(lambda: stage.session.agent_state is AgentState.FINISHED)


async def broken(stage: Stage) -> list[AnyEvent]:
    """The log, once the session is broken and says so."""
    await until(lambda: stage.session.is_broken)

    async def told() -> list[ConversationError]:
        return [event for event in await stage.log() if isinstance(event, ConversationError)]

    while not (errors := await told()):
        await stage.session.settled_state()
    assert [one.code for one in errors] == ["storage_unreadable"], "told once, whichever parts have met it"
    assert "cannot be read: the database file is damaged." in errors[0].detail
    assert stage.session.agent_state is AgentState.ERROR
    assert stage.session.is_at_rest
    log = await stage.log()
    assert isinstance(log[-1], AgentStateChanged)
    assert log[-1].agent_state is AgentState.ERROR
    return log


async def test_a_rewind_behind_which_the_log_cannot_be_read_ends_in_a_state_and_no_trace(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    await asked(stage)
    stage.model.gate.open(REPLIES["finish"])
    await until(lambda: stage.session.agent_state is AgentState.FINISHED)
    disk = Disk(stage.store)
    disk.stored = lambda event: setattr(disk, "is_damaged", event.kind == "Rewind" or disk.is_damaged)
    with pytest.raises(EventStoreError, match="damaged"):  # it is stored, and its files come back with the next open
        await stage.session.rewinder.rewind(3)
    await until(lambda: stage.session.is_broken)
    disk.is_damaged = False
    assert any(isinstance(event, Rewind) for event in await broken(stage))
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
    await stage.crash()
    await stage.begin()
    await asked(stage)
    stage.model.gate.open(REPLIES["finish"])
    await until(lambda: stage.session.agent_state is AgentState.FINISHED)


async def test_what_ran_when_the_log_could_not_be_read_is_answered_once_by_the_next_session(stage: Stage) -> None:
    await asked(stage)
    stage.model.gate.open(REPLIES["one"])
    await until(lambda: len(stage.shell))
    disk = Disk(stage.store)
    disk.is_damaged = True
    await stage.session.send(MessageEvent(source="user", llm_message=Message.user(LONG)))
    await until(lambda: stage.session.is_broken)
    disk.is_damaged = False
    await broken(stage)
    await stage.crash()
    await stage.begin()
    stage.shell.open()
    await asked(stage)
    stage.model.gate.open(REPLIES["finish"])
    await until(lambda: stage.session.agent_state is AgentState.FINISHED)
    log = await stage.log()
    answers = Counter(event.cause for event in log if isinstance(event, ObservationEvent | AgentErrorEvent))
    assert [answers[event.id] for event in log if isinstance(event, ActionEvent)] == [1, 1]


async def test_an_agent_goes_on_when_its_controller_has_failed_and_begun_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asked(stage)
    observe, failures = AgentController.observe, ["once"]

    def fails_once(controller: AgentController, event: AnyEvent) -> None:
        observe(controller, event)
        if failures:
            raise ZeroDivisionError(failures.pop())

    monkeypatch.setattr(AgentController, "observe", fails_once)
    await stage.session.stream.add_event(SkillLeftOut(path="a", detail="b"))
    await until(lambda: not failures and stage.model.asking)
    stage.model.gate.open(REPLIES["finish"])
    await until(lambda: stage.session.agent_state is AgentState.FINISHED)


async def test_nothing_is_taken_back_while_an_answer_is_still_to_be_stored(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be a second one: what is open where the conversation goes back to is answered by going back."""
    monkeypatch.setattr("agent_core.runtime.runtime.STOP_SECONDS", 0.05)
    monkeypatch.setattr("agent_core.runtime.runtime.STORE_AGAIN_SECONDS", 0.02)
    await asked(stage)
    stage.model.gate.open(REPLIES["one"])
    await until(lambda: len(stage.shell))
    action = stage.session.stream.last_id
    disk = Disk(stage.store)
    disk.refuses, disk.times = lambda event: event.kind in ("ObservationEvent", "AgentErrorEvent"), 10**9
    stage.shell.open()
    with pytest.raises(EventStoreError, match="not taken back") as caught:
        await stage.session.rewinder.rewind(action)
    assert caught.value.code == DISK_FULL
    disk.times = 0
    await until(lambda: stage.model.asking)
    await stage.session.rewinder.rewind(stage.session.stream.last_id)
    log = await stage.log()
    answers = Counter(event.cause for event in log if isinstance(event, ObservationEvent | AgentErrorEvent))
    assert answers == {action: 1}
