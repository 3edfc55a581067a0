"""Conformance suite of event stores (pytest).

Derive a class whose name begins with `Test` and override its `store` fixture with a fresh store::

    class TestMyStore(EventStoreContract):
        @pytest.fixture
        async def store(self) -> AsyncIterator[EventStore]:
            async with open_my_store() as store:
                yield store
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from agent_core.errors import StaleOwnerError
from agent_core.events.store import EventStore, NewEvent, StoredEvent, child_id

# ruff: noqa: S101 - a test suite asserts


LOG = "4f1c0e5a9d6b4b1d8a7e3c2f10987654"
FAR = 10**30
OTHER = "other"
MEGABYTE = 1024 * 1024
_MOMENT = datetime(2025, 11, 21, 12, 30, 15, 123456, tzinfo=UTC)
_EMPTY = NewEvent("MessageEvent", "user", None, _MOMENT, b"{}")


def new_event(payload: bytes | str, *, cause: int | None = None) -> NewEvent:
    """An event on its way into a store whose payload is this."""
    data = payload.encode() if isinstance(payload, str) else payload
    return NewEvent("MessageEvent", "user", cause, _MOMENT, data)


def new_events(*payloads: bytes | str) -> list[NewEvent]:
    """Events on their way into a store with these payloads."""
    return [new_event(payload) for payload in payloads]


async def read_all(store: EventStore, log: str = LOG, *, limit: int = 100) -> list[StoredEvent]:
    """The whole log, page by page."""
    found: list[StoredEvent] = []
    while page := await store.read(log, after=found[-1].id if found else -1, limit=limit):
        assert len(page) <= limit
        found += page
    return found


async def payloads(store: EventStore, log: str = LOG) -> list[bytes]:
    """The payloads of the whole log; its ids are checked to have no gaps."""
    found = await read_all(store, log)
    assert [event.id for event in found] == list(range(len(found)))
    return [event.payload for event in found]


class EventStoreContract:
    """The suite; see the module."""

    @pytest.fixture
    def store(self) -> EventStore:
        raise NotImplementedError("override the fixture `store`")

    async def test_ids_run_from_zero_without_gaps(self, store: EventStore) -> None:
        assert await store.append(LOG, new_events("a")) == 0
        assert await store.append(LOG, new_events("b", "c")) == 1
        assert await store.append(LOG, new_events("d")) == 3
        assert await store.read(LOG) == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]

    async def test_appending_nothing_stores_nothing(self, store: EventStore) -> None:
        await store.append(LOG, [])
        assert await store.last_id(LOG) == -1
        assert await store.append(LOG, new_events("a")) == 0

    async def test_an_unknown_log_is_empty(self, store: EventStore) -> None:
        assert await store.read(LOG) == []
        assert await store.read_before(LOG, before=10) == []
        assert await store.last_id(LOG) == -1

    async def test_the_last_id_follows_the_appends(self, store: EventStore) -> None:
        await store.append(LOG, new_events("a", "b"))
        assert await store.last_id(LOG) == 1
        await store.append(LOG, new_events("c"))
        assert await store.last_id(LOG) == 2

    @pytest.mark.parametrize(
        ("after", "limit", "ids"),
        [
            (-1, 3, [0, 1, 2]),
            (2, 3, [3, 4, 5]),
            (7, 3, [8, 9]),
            (9, 3, []),
            (99, 3, []),
            (-50, 2, [0, 1]),
            (4, 0, []),
            (FAR, 3, []),
            (-FAR, FAR, list(range(10))),
        ],
    )
    async def test_reading_goes_forward_from_a_position(
        self, store: EventStore, after: int, limit: int, ids: Sequence[int]
    ) -> None:
        await store.append(LOG, new_events(*"0123456789"))
        found = await store.read(LOG, after=after, limit=limit)
        assert found == [(i, str(i).encode()) for i in ids]

    @pytest.mark.parametrize(
        ("before", "limit", "ids"),
        [
            (10, 3, [9, 8, 7]),
            (3, 5, [2, 1, 0]),
            (99, 2, [9, 8]),
            (0, 3, []),
            (-5, 3, []),
            (5, 0, []),
            (FAR, 1, [9]),
            (-FAR, 1, []),
        ],
    )
    async def test_reading_goes_backward_from_a_position(
        self, store: EventStore, before: int, limit: int, ids: Sequence[int]
    ) -> None:
        await store.append(LOG, new_events(*"0123456789"))
        found = await store.read_before(LOG, before=before, limit=limit)
        assert found == [(i, str(i).encode()) for i in ids]

    async def test_logs_do_not_mix(self, store: EventStore) -> None:
        await store.append(LOG, new_events("a"))
        assert await store.append(OTHER, new_events("b")) == 0
        await store.append(LOG, new_events("c"))
        assert await payloads(store) == [b"a", b"c"]
        assert await payloads(store, OTHER) == [b"b"]

    @pytest.mark.parametrize("log", ["UPPER", "with space", "ä/ö", "..", "~x", "x" * 100, "💡" * 25])
    async def test_any_conversation_id_names_a_log_of_its_own(self, store: EventStore, log: str) -> None:
        large = b"x" * (2 * MEGABYTE)
        for name in ("upper", log):
            await store.append(name, new_events(name, large))
        await store.delete("upper")
        assert await payloads(store, log) == [log.encode(), large]

    async def test_payloads_come_back_byte_for_byte(self, store: EventStore) -> None:
        expected = [b"", bytes(range(256)), "ünïcode 💡 \u2028".encode(), b"x" * 100_000]
        await store.append(LOG, new_events(*expected))
        assert await payloads(store) == expected

    async def test_large_payloads_come_back_like_small_ones(self, store: EventStore) -> None:
        large, larger = b"L" * (MEGABYTE + 1), bytes(range(256)) * (3 * MEGABYTE // 256)
        assert await store.append(LOG, new_events("a", large, "b")) == 0
        assert await store.append(LOG, new_events(larger)) == 3
        assert await payloads(store) == [b"a", large, b"b", larger]
        assert await store.read_before(LOG, before=4, limit=1) == [(3, larger)]

    async def test_a_page_of_large_payloads_may_be_short_but_never_empty(self, store: EventStore) -> None:
        expected = [b"%d" % i + b"x" * (900 * 1024 if i % 3 else 6 * MEGABYTE) for i in range(9)]
        await store.append(LOG, new_events(*expected))
        assert await payloads(store) == expected
        backward: list[StoredEvent] = []
        while page := await store.read_before(LOG, before=backward[-1].id if backward else 9):
            backward += page
        assert [event.payload for event in reversed(backward)] == expected

    async def test_an_append_longer_than_any_page_stays_together(self, store: EventStore) -> None:
        expected = [b"%d" % i for i in range(2500)]
        assert await store.append(LOG, new_events(*expected)) == 0
        assert await payloads(store) == expected

    async def test_simultaneous_appends_get_their_ids_in_the_order_of_the_calls(self, store: EventStore) -> None:
        calls = [store.append(LOG, new_events(f"{i}", f"{i}'")) for i in range(100)]
        assert await asyncio.gather(*calls) == list(range(0, 200, 2))
        assert await payloads(store) == [text for i in range(100) for text in (b"%d" % i, b"%d'" % i)]

    async def test_a_large_payload_does_not_lose_its_place(self, store: EventStore) -> None:
        sizes = (10, 2 * MEGABYTE, 10, 3 * MEGABYTE, 10)
        calls = [store.append(LOG, new_events(b"%d" % i * size)) for i, size in enumerate(sizes)]
        assert await asyncio.gather(*calls) == [0, 1, 2, 3, 4]
        assert [event[:1] for event in await payloads(store)] == [b"0", b"1", b"2", b"3", b"4"]

    async def test_many_logs_grow_at_the_same_time(self, store: EventStore) -> None:
        async def write(log: str) -> None:
            for i in range(20):
                assert await store.append(log, new_events(f"{log}-{i}")) == i

        logs = [f"log-{n}" for n in range(30)]
        await asyncio.gather(*(write(log) for log in logs))
        for log in logs:
            assert await payloads(store, log) == [f"{log}-{i}".encode() for i in range(20)]

    async def test_a_claim_gives_a_higher_epoch_each_time(self, store: EventStore) -> None:
        epochs = [await store.claim(LOG) for _ in range(3)]
        assert epochs == sorted(set(epochs))
        assert epochs[0] > 0

    async def test_the_owner_of_before_is_fenced_off(self, store: EventStore) -> None:
        old = await store.claim(LOG)
        await store.append(LOG, new_events("a"), epoch=old)
        new = await store.claim(LOG)
        with pytest.raises(StaleOwnerError, match=LOG):
            await store.append(LOG, new_events("stale"), epoch=old)
        with pytest.raises(StaleOwnerError):
            await store.append(LOG, new_events("stale"))
        assert await store.append(LOG, new_events("b"), epoch=new) == 1
        assert await payloads(store) == [b"a", b"b"]

    async def test_a_stale_append_harms_no_other(self, store: EventStore) -> None:
        old = await store.claim(LOG)
        new = await store.claim(LOG)
        epochs = [new, old, new, old, old, new]
        calls = [store.append(LOG, new_events(f"{i}"), epoch=epoch) for i, epoch in enumerate(epochs)]
        others = [store.append(OTHER, new_events(f"{i}")) for i in range(3)]
        results = await asyncio.gather(*calls, *others, return_exceptions=True)
        stale = [i for i, result in enumerate(results) if isinstance(result, StaleOwnerError)]
        assert stale == [1, 3, 4]
        assert [result for result in results if isinstance(result, int)] == [0, 1, 2, 0, 1, 2]
        assert await payloads(store) == [b"0", b"2", b"5"]

    async def test_a_claim_while_appends_are_pending_cuts_the_log_at_one_point(self, store: EventStore) -> None:
        old = await store.claim(LOG)
        before = [store.append(LOG, new_events(f"{i}"), epoch=old) for i in range(10)]
        after = [store.append(LOG, new_events("late"), epoch=old) for _ in range(5)]
        outcome = await asyncio.gather(*before, store.claim(LOG), *after, return_exceptions=True)
        stored = [first for first in (*outcome[:10], *outcome[11:]) if isinstance(first, int)]
        assert stored == list(range(len(stored)))
        assert all(isinstance(result, int | StaleOwnerError) for result in outcome)
        with pytest.raises(StaleOwnerError):
            await store.append(LOG, new_events("too late"), epoch=old)
        assert len(await payloads(store)) == len(stored)

    async def test_a_deleted_log_is_gone_and_may_begin_again(self, store: EventStore) -> None:
        await store.append(LOG, new_events("a", b"x" * (2 * MEGABYTE)))
        await store.append(OTHER, new_events("b"))
        await store.delete(LOG)
        assert await store.last_id(LOG) == -1
        assert await store.read(LOG) == []
        assert await store.append(LOG, new_events("new")) == 0
        assert await payloads(store) == [b"new"]
        assert await payloads(store, OTHER) == [b"b"]

    async def test_deleting_what_is_not_there_is_fine(self, store: EventStore) -> None:
        await store.delete(LOG)
        await store.delete(LOG)
        assert await store.last_id(LOG) == -1

    async def test_the_owner_of_a_deleted_log_is_fenced_off(self, store: EventStore) -> None:
        old = await store.claim(LOG)
        await store.append(LOG, new_events("a"), epoch=old)
        await store.delete(LOG)
        with pytest.raises(StaleOwnerError):
            await store.append(LOG, new_events("ghost"), epoch=old)
        assert await store.last_id(LOG) == -1
        assert await store.append(LOG, new_events("b"), epoch=await store.claim(LOG)) == 0

    @pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8])
    async def test_a_cancelled_append_leaves_the_log_whole(self, store: EventStore, turns: int) -> None:
        first = asyncio.ensure_future(store.append(LOG, new_events("a")))
        cut = asyncio.ensure_future(store.append(LOG, new_events("cut-1", "cut-2")))
        large = asyncio.ensure_future(store.append(LOG, new_events(b"z" * (2 * MEGABYTE))))
        last = asyncio.ensure_future(store.append(LOG, new_events("b")))
        for _ in range(turns):
            await asyncio.sleep(0)
        cut.cancel()
        large.cancel()
        results = await asyncio.gather(first, cut, large, last, return_exceptions=True)
        assert results[0] == 0
        stored = await payloads(store)
        whole = [b"cut-1", b"cut-2"] if b"cut-1" in stored else []
        if any(payload.startswith(b"z") for payload in stored):
            whole.append(b"z" * (2 * MEGABYTE))
        assert stored == [b"a", *whole, b"b"]
        assert results[3] == len(stored) - 1
        assert await store.append(LOG, new_events("c")) == len(stored)

    async def test_readers_see_only_whole_appends(self, store: EventStore) -> None:
        async def write() -> None:
            for i in range(30):
                await store.append(LOG, new_events(f"{i}", f"{i}'", f"{i}''"))

        async with asyncio.TaskGroup() as group:
            writing = group.create_task(write())
            while not writing.done():
                assert (await store.last_id(LOG) + 1) % 3 == 0
                assert len(await store.read(LOG, limit=1000)) % 3 == 0
                await asyncio.sleep(0)

    async def test_an_append_is_seen_by_whoever_reads_afterwards(self, store: EventStore) -> None:
        async def check(log: str) -> None:
            for i in range(20):
                first = await store.append(log, new_events(f"{i}"))
                assert await store.read(log, after=first - 1) == [(first, b"%d" % i)]
                assert await store.last_id(log) == first

        await asyncio.gather(*(check(f"log-{n}") for n in range(5)))

    async def test_a_deleted_log_takes_those_below_along_and_fences_off_their_owners(self, store: EventStore) -> None:
        child = child_id(LOG, "task_00000001")
        logs = [LOG, child, child_id(child, "delegate-7-1"), child_id(LOG, "delegate-7-1")]
        others = [f"{LOG}0", child_id(f"{LOG}0", "task_00000001"), f"{LOG[:-1]}%", LOG[:-1]]
        epochs = {log: await store.claim(log) for log in (*logs, *others)}
        for log, epoch in epochs.items():
            await store.append(log, [_EMPTY, _EMPTY], epoch=epoch)
        await store.delete(LOG)
        assert [await store.last_id(log) for log in logs] == [-1] * len(logs)
        assert [await store.last_id(log) for log in others] == [1] * len(others)
        for log in logs:
            with pytest.raises(StaleOwnerError):
                await store.append(log, [_EMPTY], epoch=epochs[log])

    async def test_a_log_below_a_deleted_one_can_be_begun_again(self, store: EventStore) -> None:
        child = child_id(LOG, "task_00000001")
        for _ in range(2):
            epoch = await store.claim(child)
            assert await store.append(child, [_EMPTY], epoch=epoch) == 0
            await store.delete(LOG)
