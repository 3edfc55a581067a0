"""What callbacks may ask of the conversation that calls them: nothing hangs."""

from __future__ import annotations

import threading

import pytest

from agent_core import Conversation, ConversationRunError, Event, ExecutionStatus
from agent_core.errors import EventStoreError
from agent_core.events.llm_events import ActionEvent, MessageEvent, ObservationEvent
from agent_core.events.store import InMemoryEventStore, StoredEvent
from tests.unit.library.playing import DONE, Sandbox, Script, agent, conversation, model, run

WAITS = "would wait for itself"


def test_a_callback_may_send_messages_and_look_and_while_the_agent_works_pause_it() -> None:
    one: Conversation
    refused: list[str] = []

    def asks(event: Event) -> None:
        if isinstance(event, MessageEvent) and event.llm_message.text == "Hello":
            one.send_message("And one thing more.")
            for action in (one.pause, one.run, lambda: one.switch_llm(model(Script(), usage_id="other")), one.close):
                try:
                    action()
                except RuntimeError as error:
                    refused.append(str(error))
        elif isinstance(event, ActionEvent) and not refused[4:]:
            one.send_message("Wait.")
            refused.append(str(one.state.execution_status))
            one.pause()
            sandbox.held.set()

    script, sandbox = Script(run("ls"), DONE, DONE), Sandbox()
    sandbox.held.clear()
    with conversation(agent(script), workspace=sandbox, callbacks=[asks]) as one:
        one.send_message("Hello")
        assert [WAITS in text for text in refused] == [True] * 4
        statuses = []
        for _ in range(2):
            one.run()
            statuses.append(one.state.execution_status)
    assert statuses == [ExecutionStatus.PAUSED, ExecutionStatus.FINISHED]
    assert refused[4] == "running"
    told = script.prompt()
    assert "And one thing more." in told
    assert "Wait." in told


def test_the_same_goes_for_one_that_is_awaited_and_not_for_what_it_leaves_behind() -> None:
    one: Conversation
    refused: list[str] = []

    async def asks(event: Event) -> None:
        if isinstance(event, MessageEvent) and event.llm_message.text == "Hello":
            await one.asend_message("And one thing more.")
            try:
                await one.aclose()
            except RuntimeError as error:
                refused.append(str(error))

    script = Script(DONE)
    with conversation(agent(script), callbacks=[asks]) as one:
        one.send_message("Hello")
        assert [WAITS in text for text in refused] == [True]
        one.run()
        assert one.state.execution_status is ExecutionStatus.FINISHED
    assert "And one thing more." in script.prompt()


def test_a_run_whose_log_cannot_be_read_on_for_the_callbacks_ends_with_that_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sandbox, script = Sandbox(), Script(*[run(str(number)) for number in range(8)], DONE)
    sandbox.answer = lambda command: command * 30_000  # more than the stream keeps in memory for slow readers
    looks_on = threading.Event()
    failed: list[ConversationRunError] = []

    def slow(event: Event) -> None:
        if isinstance(event, ActionEvent):
            looks_on.wait(60)

    def work() -> None:
        try:
            one.run()
        except ConversationRunError as error:
            failed.append(error)

    with conversation(agent(script), workspace=sandbox, callbacks=[slow]) as one:
        one.send_message("Go.")
        running = threading.Thread(target=work)
        running.start()
        while len(script.requests) < 9:
            script.asked.wait(60)
            script.asked.clear()
        monkeypatch.setattr(InMemoryEventStore, "read", unreadable)
        looks_on.set()
        running.join(60)
        assert [str(error).partition(": ")[2] for error in failed] == ["the disk is gone"]
        monkeypatch.undo()


async def unreadable(*_given: object, **_options: object) -> list[StoredEvent]:
    """What a store does that lost its disk."""
    raise EventStoreError("the disk is gone")


def test_what_a_callback_does_with_an_event_changes_nothing_that_the_agent_is_told() -> None:
    def spoils(event: Event) -> None:
        if isinstance(event, MessageEvent):
            event.llm_message.content.clear()
        elif isinstance(event, ObservationEvent):
            event.observation.content.clear()

    script = Script(run("ls"), DONE)
    with conversation(agent(script), callbacks=[spoils]) as one:
        one.send_message("Hello")
        one.run()
        assert "Hello" in script.prompt()
        assert "ran ls" in script.prompt()
