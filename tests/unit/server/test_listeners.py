"""Event listeners of somebody's own: what they are told, and that nothing they do disturbs a conversation."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from agent_core.events.event import Event
from agent_core.events.llm_events import MessageEvent
from agent_core.events.messages import Message
from agent_core.events.store import InMemoryEventStore
from agent_core.events.stream import EventStream
from agent_core.troubles import Trouble
from server.errors import ConfigurationError
from server.listeners import EventListener
from server.metrics import ServerMetrics
from server.session import listening
from server.session.listening import Listeners
from tests.waiting import until


class Notes(EventListener):
    listener_name = "notes-of-tests"
    told: list[tuple[str, int]] = []  # noqa: RUF012 - emptied for each test

    async def on_event(self, conversation_id: str, event: Event) -> None:
        Notes.told.append((conversation_id, event.id))


class Faulty(EventListener):
    """Fails at every other event in a way of its own, and does not come back from the fifth."""

    listener_name = "faulty-of-tests"

    async def on_event(self, conversation_id: str, event: Event) -> None:
        faults: list[BaseException] = [ValueError("a bug"), SystemExit(3), asyncio.CancelledError(), TimeoutError()]
        if event.id < len(faults):
            raise faults[event.id]
        await asyncio.Event().wait()

    async def close(self) -> None:
        raise RuntimeError("no end")


class NeedsMore(Notes):
    listener_name = "needs-more-of-tests"

    def __init__(self, path: str) -> None:
        self.path = path


@pytest.fixture(autouse=True)
def forget() -> None:
    Notes.told.clear()


def message(number: int) -> MessageEvent:
    return MessageEvent(source="user", llm_message=Message.user(f"message {number}"))


async def test_every_event_is_told_in_order_while_another_listener_fails_at_all_of_them(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listening, "EVENT_SECONDS", 0.05)
    store, metrics = InMemoryEventStore(), ServerMetrics()
    async with AsyncExitStack() as entered:
        entered.enter_context(metrics.counting_lines())
        listeners = await entered.enter_async_context(Listeners(["faulty-of-tests", "notes-of-tests"]))
        stream = await EventStream.open("c", store)
        tasks = listeners.follow(stream)
        for number in range(6):
            await stream.add_event(message(number))
        await until(lambda: len(Notes.told) == 6)
        stream.close()
        await asyncio.gather(*tasks)
    assert Notes.told == [("c", number) for number in range(6)]
    assert "'faulty-of-tests' failed in conversation c at event 0" in caplog.text
    assert "'faulty-of-tests' failed at 6 events of conversation c" in caplog.text
    assert "'faulty-of-tests' did not end well" in caplog.text
    assert metrics.troubles(Trouble.LISTENER_FAILED) == 6 + 1
    told = [vars(one).get("conversation_id") for one in caplog.records if vars(one).get("code")]
    assert told == ["c", "c", None], "its end is nobody's"


async def test_a_slow_listener_sees_all_that_was_stored_before_its_conversation_was_unloaded() -> None:
    store = InMemoryEventStore()
    async with Listeners(["notes-of-tests"]) as listeners:
        stream = await EventStream.open("c", store)
        await stream.add_event(message(0))
        tasks = listeners.follow(stream)
        await stream.add_event(message(1))
        stream.close()  # before it has had a turn
        await asyncio.gather(*tasks)
    assert Notes.told == [("c", 1)], "what was there before it came is not told"


async def test_a_listener_that_cannot_be_made_stops_the_start_by_name() -> None:
    with pytest.raises(ConfigurationError, match="event_listeners: 'needs-more-of-tests' cannot be made: TypeError"):
        async with Listeners(["needs-more-of-tests"]):
            pass


def test_two_listeners_cannot_have_one_name() -> None:
    with pytest.raises(ValueError, match="named 'notes-of-tests' is there already: Notes"):
        type("Others", (Notes,), {"listener_name": "notes-of-tests"})
