"""The stream: order, gaplessness, the join of history and live events, and what is never seen."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_core.errors import EventStoreError, StaleOwnerError, StreamClosedError
from agent_core.events.control import AgentState, AgentStateChanged, ChangeAgentState, ForeignEvent
from agent_core.events.event import utc_now
from agent_core.events.llm_events import MessageEvent
from agent_core.events.messages import Message
from agent_core.events.serialization import AnyEvent
from agent_core.events.store import InMemoryEventStore, NewEvent, StoredEvent
from agent_core.events.stream import EventStream
from agent_core.events.transient import OutputDelta, StatusNotice, TextDelta, Transient
from server.wire.envelope import to_wire


def message(text: str) -> MessageEvent:
    return MessageEvent(source="user", llm_message=Message.user(text))


def text_of(event: AnyEvent | Transient) -> str:
    assert isinstance(event, MessageEvent)
    return event.llm_message.text


class SteppedStore(InMemoryEventStore):
    """A store whose every append and read waits for as many turns of the loop as it is told."""

    def __init__(self, turns: Sequence[int]) -> None:
        super().__init__()
        self._turns = list(turns)

    async def _wait(self) -> None:
        for _ in range(self._turns.pop() if self._turns else 0):
            await asyncio.sleep(0)

    async def append(self, conversation_id: str, events: Sequence[NewEvent], *, epoch: int = 0) -> int:
        first = await super().append(conversation_id, events, epoch=epoch)
        await self._wait()
        return first

    async def read(self, conversation_id: str, *, after: int = -1, limit: int = 100) -> list:  # type: ignore[type-arg]
        found = await super().read(conversation_id, after=after, limit=min(limit, 3))
        await self._wait()
        return found


class CountingStore(InMemoryEventStore):
    """A store that counts how often it is read."""

    reads = 0

    async def read(self, conversation_id: str, *, after: int = -1, limit: int = 100) -> list:  # type: ignore[type-arg]
        self.reads += 1
        return await super().read(conversation_id, after=after, limit=limit)


class FailingStore(InMemoryEventStore):
    """A store that fails as long as it is told to."""

    failing = False

    async def append(self, conversation_id: str, events: Sequence[NewEvent], *, epoch: int = 0) -> int:
        if self.failing:
            raise EventStoreError("no room left on the disk")
        return await super().append(conversation_id, events, epoch=epoch)


async def collect(stream: EventStream, *, after: int, until: int) -> list[AnyEvent]:
    seen: list[AnyEvent] = []
    async with asyncio.timeout(30), stream.subscribe(after=after) as events:
        async for event in events:
            assert not isinstance(event, Transient)
            seen.append(event)
            if event.id >= until:
                return seen
    return seen


async def test_events_are_numbered_from_zero_without_gaps() -> None:
    stream = await EventStream.open("c", InMemoryEventStore())
    stored = [await stream.add_event(message(str(i))) for i in range(5)]
    stored += await stream.add_events([message("5"), message("6")])
    assert [event.id for event in stored] == [0, 1, 2, 3, 4, 5, 6]
    assert stream.last_id == 6


async def test_an_event_is_stored_with_its_source_its_cause_and_the_time_of_now() -> None:
    stream = await EventStream.open("c", InMemoryEventStore())
    await stream.add_event(message("first"))
    began = utc_now()
    old = message("then").model_copy(update={"timestamp": began - timedelta(days=1)})
    stored = await stream.add_event(old, "agent", cause=0)
    assert (stored.source, stored.cause) == ("agent", 0)
    assert began <= stored.timestamp <= utc_now()
    assert [event async for event in stream.history(after=0)] == [stored]


async def test_events_added_together_stand_together() -> None:
    stream = await EventStream.open("c", InMemoryEventStore())
    first, second = await asyncio.gather(
        stream.add_events([message("a1"), message("a2")]), stream.add_events([message("b1"), message("b2")])
    )
    assert [event.id for event in [*first, *second]] == [0, 1, 2, 3]


@settings(max_examples=150, deadline=None)
@given(
    turns=st.lists(st.integers(0, 4), max_size=40),
    history=st.integers(0, 12),
    live=st.lists(st.integers(0, 3), max_size=12),
    after=st.integers(-1, 14),
    join_after_turns=st.integers(0, 6),
)
def test_history_and_live_join_without_gap_or_duplicate_under_any_interleaving(
    turns: list[int], history: int, live: list[int], after: int, join_after_turns: int
) -> None:
    async def scenario() -> None:
        store = SteppedStore(turns)
        first_owner = await EventStream.open("c", store)
        for i in range(history):
            await first_owner.add_event(message(str(i)))
        stream = await EventStream.open("c", store)
        total = history + len(live)
        last = total - 1
        start = min(after, last - 1) if last >= 0 else -1

        async def write() -> None:
            async with asyncio.TaskGroup() as group:
                for i, pause in enumerate(live):
                    for _ in range(pause):
                        await asyncio.sleep(0)
                    group.create_task(stream.add_event(message(str(history + i))))

        async def follow() -> list[AnyEvent]:
            for _ in range(join_after_turns):
                await asyncio.sleep(0)
            return await collect(stream, after=start, until=last) if last > start else []

        _, one, two = await asyncio.gather(write(), follow(), follow())
        for seen in (one, two):
            assert [event.id for event in seen] == list(range(start + 1, total))
            assert [text_of(event) for event in seen] == [str(i) for i in range(start + 1, total)]

    asyncio.run(scenario())


async def test_a_slow_reader_falls_back_to_the_store_and_misses_nothing() -> None:
    stream = await EventStream.open("c", InMemoryEventStore())
    async with stream.subscribe() as events:
        for i in range(500):
            await stream.add_event(message(str(i)))
        assert len(stream._recent) < 500
        seen = [await anext(events) for _ in range(500)]
    assert [text_of(event) for event in seen] == [str(i) for i in range(500)]


async def test_only_what_a_live_reader_has_still_to_read_is_kept_in_memory() -> None:
    store = CountingStore()
    stream = await EventStream.open("c", store)
    async with stream.subscribe() as quick, stream.subscribe() as slow:
        await stream.add_events([message(str(n)) for n in range(10)])
        assert [text_of(await anext(quick)) for _ in range(10)] == [str(n) for n in range(10)]
        await stream.add_event(message("10"))
        assert [text_of(await anext(slow)) for _ in range(11)] == [str(n) for n in range(11)]
        assert text_of(await anext(quick)) == "10"
        assert store.reads == 0
        await stream.add_event(message("11"))
        assert [text_of(await anext(reader)) for reader in (quick, slow)] == ["11", "11"]
        assert store.reads == 0
        assert len(await stream.page()) == 12
        assert store.reads == 1


async def test_nobody_sees_an_event_that_was_not_stored() -> None:
    store = FailingStore()
    stream = await EventStream.open("c", store)
    store.failing = True
    with pytest.raises(EventStoreError, match="no room"):
        await stream.add_event(message("lost"))
    store.failing = False
    kept = await stream.add_event(message("kept"))
    assert kept.id == 0
    assert [text_of(event) for event in await stream.page()] == ["kept"]


class UnreadableStore(InMemoryEventStore):
    """A store whose next reads fail with this code, as often as it is told."""

    code = "storage_unavailable"
    failures = 0

    async def read(self, conversation_id: str, *, after: int = -1, limit: int = 100) -> list[StoredEvent]:
        if self.failures:
            self.failures -= 1
            raise EventStoreError("the disk reported an error", code=self.code)
        return await super().read(conversation_id, after=after, limit=limit)


async def test_a_reader_waits_while_the_log_cannot_be_read_for_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_core.events.stream.READ_AGAIN_SECONDS", 0.001)
    store = UnreadableStore()
    writer = await EventStream.open("c", store)
    await writer.add_events([message(str(i)) for i in range(3)])
    stream = await EventStream.open("c", store)
    store.failures = 5
    assert [text_of(event) for event in await collect(stream, after=-1, until=2)] == ["0", "1", "2"]
    assert not store.failures


@pytest.mark.parametrize(("code", "is_closed"), [("", False), ("storage_unavailable", True)])
async def test_a_reader_is_told_what_will_not_pass(code: str, is_closed: bool) -> None:
    store = UnreadableStore()
    await (await EventStream.open("c", store)).add_event(message("0"))
    stream = await EventStream.open("c", store)
    store.failures, store.code = 1, code
    if is_closed:
        stream.close()
    with pytest.raises(EventStoreError, match="the disk"):
        await collect(stream, after=-1, until=0)


async def test_a_cancelled_writer_leaves_a_whole_log_and_its_event_is_seen() -> None:
    stream = await EventStream.open("c", SteppedStore([5, 5, 5, 5]))
    writing = asyncio.create_task(stream.add_event(message("a")))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    await stream.add_event(message("b"))
    assert [text_of(event) for event in await collect(stream, after=-1, until=1)] == ["a", "b"]


async def test_a_stale_owner_cannot_append() -> None:
    store = InMemoryEventStore()
    old = await EventStream.open("c", store)
    new = await EventStream.open("c", store)
    with pytest.raises(StaleOwnerError):
        await old.add_event(message("too late"))
    assert (await new.add_event(message("mine"))).id == 0


async def test_an_event_that_is_in_a_log_cannot_be_added_again() -> None:
    stream = await EventStream.open("c", InMemoryEventStore())
    stored = await stream.add_event(message("a"))
    with pytest.raises(ValueError, match="cannot be added again"):
        await stream.add_events([stored])


async def test_a_closed_stream_takes_nothing_and_lets_its_readers_end() -> None:
    stream = await EventStream.open("c", InMemoryEventStore())
    await stream.add_event(message("a"))
    async with stream.subscribe() as events:
        assert text_of(await anext(events)) == "a"
        waiting = asyncio.create_task(anext(events, None))
        await asyncio.sleep(0)
        stream.close()
        assert await asyncio.wait_for(waiting, 30) is None
    with pytest.raises(StreamClosedError):
        await stream.add_event(message("b"))


async def test_secrets_are_masked_in_what_is_stored_and_in_what_is_seen() -> None:
    store = InMemoryEventStore()
    stream = await EventStream.open("c", store)
    stream.secrets.add(["sesame-open-42"])
    stored = await stream.add_event(message("the key is sesame-open-42, dear"))
    assert text_of(stored) == "the key is <secret_hidden>, dear"
    assert b"sesame" not in (await store.read("c"))[0].payload


async def test_a_secret_that_is_a_word_of_our_own_vocabulary_loses_no_event() -> None:
    stream = await EventStream.open("c", InMemoryEventStore())
    stream.secrets.add(["running"])
    changed = await stream.add_event(AgentStateChanged(agent_state=AgentState.RUNNING, reason="was running"))
    assert isinstance(changed, AgentStateChanged)
    assert (changed.agent_state, changed.reason) == (AgentState.RUNNING, "was <secret_hidden>")


async def test_half_characters_are_replaced_and_lose_no_event() -> None:
    stream = await EventStream.open("c", InMemoryEventStore())
    stored = await stream.add_event(message("a\ud800b"))
    assert text_of(stored) == "a?b"


async def test_notices_come_between_the_events_where_they_were_published() -> None:
    stream = await EventStream.open("c", InMemoryEventStore())
    async with stream.subscribe(transients=True) as events:
        await stream.add_event(message("a"))
        stream.publish(StatusNotice("STATUS$STARTING_RUNTIME", "starting"))
        await stream.add_event(message("b"))
        stream.publish(StatusNotice("STATUS$READY", "ready"))
        seen = [await anext(events) for _ in range(4)]
    shown = [item.status_id if isinstance(item, StatusNotice) else text_of(item) for item in seen]
    assert shown == ["a", "STATUS$STARTING_RUNTIME", "b", "STATUS$READY"]


async def test_deltas_of_one_text_are_joined_while_the_reader_is_busy() -> None:
    stream = await EventStream.open("c", InMemoryEventStore())
    async with stream.subscribe(transients=True) as events:
        for piece in "Hello":
            stream.publish(TextDelta("r1", piece))
        stream.publish(OutputDelta(3, "out"))
        assert await anext(events) == TextDelta("r1", "Hello")
        assert await anext(events) == OutputDelta(3, "out")


async def test_a_reader_that_never_reads_holds_a_bounded_number_of_notices() -> None:
    stream = await EventStream.open("c", InMemoryEventStore())
    async with stream.subscribe(transients=True) as events:
        for i in range(10_000):
            stream.publish(TextDelta(f"r{i}", "x" * 100))
        for _ in range(100):
            stream.publish(TextDelta("last", "y" * 10_000))
        assert len(events._notices) <= 64
        texts = [pending.notice for pending in events._notices if isinstance(pending.notice, TextDelta)]
        assert sum(len(delta.text) for delta in texts) < 100_000


async def test_a_reader_that_has_left_is_not_kept() -> None:
    stream = await EventStream.open("c", InMemoryEventStore())
    async with stream.subscribe(transients=True) as reader:
        left = weakref.ref(reader)
    del reader
    gc.collect()
    stream.publish(TextDelta("r", "x"))
    assert left() is None


async def test_notices_reach_only_those_who_asked_for_them() -> None:
    stream = await EventStream.open("c", InMemoryEventStore())
    async with stream.subscribe() as events:
        stream.publish(StatusNotice("STATUS$READY", "ready"))
        await stream.add_event(ChangeAgentState(agent_state=AgentState.RUNNING))
        assert isinstance(await anext(events), ChangeAgentState)


async def test_data_that_could_not_be_read_again_is_refused() -> None:
    store = InMemoryEventStore()
    stream = await EventStream.open("c", store)

    async def add(depth: int) -> None:
        deep: dict[str, object] = {}
        for _ in range(depth):
            deep = {"a": deep}
        await stream.add_event(ForeignEvent(name="x", is_action=True, payload=deep))

    await add(150)
    for depth in (210, 250):
        with pytest.raises(ValueError, match="make it flatter"):
            await add(depth)
    with pytest.raises(ValueError, match="depth"):
        await add(400)
    await stream.add_events([message("wide" * 100)] * 3)
    another = await EventStream.open("c", store)
    assert [event.id async for event in another.history()] == [0, 1, 2, 3]


async def test_an_event_that_cannot_be_read_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    store = InMemoryEventStore()
    await (await EventStream.open("c", store)).add_event(message("first"))
    newer = b'{"timestamp":"2030-01-01T00:00:00Z","source":"agent","cause":null,"kind":"Telepathy","thought":"x"}'
    foreign = [NewEvent("Telepathy", "agent", None, utc_now(), payload) for payload in (newer, b"{")]
    await store.append("c", foreign, epoch=1)
    stream = await EventStream.open("c", store)
    await stream.add_event(message("last"))
    events = [event async for event in stream.history()]
    assert [event.id for event in events] == [0, 1, 2, 3]
    assert [event.kind for event in events] == ["MessageEvent", "ForeignEvent", "ForeignEvent", "MessageEvent"]
    assert [to_wire(event, live=False) for event in events[1:3]] == [None, None]
    assert "event 1 of conversation c cannot be read and is passed over" in caplog.text


class ImpatientStore(InMemoryEventStore):
    """A store that is asked for no more pages than it takes to see that there are none."""

    reads = 0

    async def read(self, conversation_id: str, *, after: int = -1, limit: int = 100) -> list[StoredEvent]:
        self.reads += 1
        assert self.reads < 10, "it is read again and again"
        return await super().read(conversation_id, after=after, limit=limit)


async def test_the_history_of_a_log_that_was_deleted_ends() -> None:
    store = ImpatientStore()
    first = await EventStream.open("c", store)
    await first.add_event(message("hello"))
    stream = await EventStream.open("c", store)
    await store.delete("c")
    assert [event async for event in stream.history()] == []


async def test_many_who_read_the_same_at_once_read_it_once_and_share_it() -> None:
    store = CountingStore()
    stream = await EventStream.open("c", store)
    for number in range(3):
        await stream.add_event(message(str(number)))
    store.reads = 0

    async def read_together() -> int:
        pages = await asyncio.gather(*(stream.page() for _ in range(100)))
        pages.append(await stream.page())  # shared as long as somebody is at it
        return len({id(page) for page in pages})

    assert await read_together() == 1
    assert store.reads == 1
    await asyncio.sleep(0)
    gc.collect()
    assert len(await stream.page()) == 3
    assert store.reads == 2  # nothing was kept for nobody


async def test_one_of_those_who_read_the_same_may_go_away() -> None:
    stream = await EventStream.open("c", SteppedStore([20]))
    await stream.add_event(message("a"))
    first, second = asyncio.create_task(stream.page()), asyncio.create_task(stream.page())
    await asyncio.sleep(0)
    first.cancel()
    assert [text_of(event) for event in await second] == ["a"]
