"""Whatever happens in whatever order, a log stays gapless and in order, and says the truth to its writers."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.ext.asyncio import AsyncConnection

from agent_core.errors import EventStoreError, StaleOwnerError
from agent_core.events.store import EventStore, InMemoryEventStore
from agent_core.testing.store_contract import new_events, payloads
from server.db.database import open_database
from server.db.engine import DatabaseSettings
from server.db.event_rows import EventRow
from server.db.event_store import SqlEventStore
from server.db.writer import Writer

LARGE = 2000
LOGS = 3


@dataclass
class Faults:
    """Failures that wait for the next transactions."""

    waiting: int = 0


@dataclass
class Bench:
    store: EventStore
    faults: Faults


@dataclass
class Append:
    log: str
    payloads: list[bytes]
    task: asyncio.Task[int]


@asynccontextmanager
async def in_memory() -> AsyncIterator[Bench]:
    yield Bench(InMemoryEventStore(), Faults())


@asynccontextmanager
async def in_sqlite() -> AsyncIterator[Bench]:
    """A store whose transactions fail on demand."""
    faults = Faults()
    with tempfile.TemporaryDirectory() as folder:
        async with open_database(Path(folder), DatabaseSettings(synchronous="NORMAL")) as database:
            await database.writer.close()
            insert_events = database.engines.insert_events

            async def failing(connection: AsyncConnection, rows: Sequence[EventRow]) -> set[str]:
                if faults.waiting:
                    faults.waiting -= 1
                    raise sqlite3.OperationalError("disk I/O error")
                return await insert_events(connection, rows)

            engines = replace(database.engines, insert_events=failing, max_rows=7)
            async with Writer(engines, close_timeout_seconds=5) as writer:
                store = SqlEventStore(engines, writer, database.blobs, inline_payload_bytes=LARGE - 1)
                yield Bench(store, faults)


Steps = list[tuple[str, int, int]]

STEPS: st.SearchStrategy[Steps] = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, LOGS - 1), st.integers(1, 4)),
        st.tuples(st.just("append"), st.integers(0, LOGS - 1), st.integers(1, 4)),
        st.tuples(st.just("large"), st.integers(0, LOGS - 1), st.just(0)),
        st.tuples(st.just("stale"), st.integers(0, LOGS - 1), st.just(0)),
        st.tuples(st.just("claim"), st.integers(0, LOGS - 1), st.just(0)),
        st.tuples(st.just("read"), st.integers(0, LOGS - 1), st.integers(1, 5)),
        st.tuples(st.just("cancel"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("fail"), st.integers(1, 2), st.just(0)),
        st.tuples(st.just("turn"), st.integers(1, 3), st.just(0)),
        st.tuples(st.just("settle"), st.just(0), st.just(0)),
    ),
    max_size=40,
)


async def play(bench: Bench, steps: Steps) -> None:
    store = bench.store
    logs = [uuid.uuid4().hex for _ in range(LOGS)]
    epochs = {log: [0, await store.claim(log)] for log in logs}
    appends: list[Append] = []
    reads: list[asyncio.Task[None]] = []
    serial = 0

    def append(log: str, count: int, epoch: int, *, size: int = 1) -> None:
        nonlocal serial
        data = [b"%06d" % (serial + i) * size for i in range(count)]
        serial += count
        appends.append(Append(log, data, asyncio.create_task(store.append(log, new_events(*data), epoch=epoch))))

    async def read_through(log: str, limit: int) -> None:
        """A reader may be anywhere: what it sees is a gapless beginning of the log, in order."""
        position = -1
        while page := await store.read(log, after=position, limit=limit):
            assert [event.id for event in page] == list(range(position + 1, position + 1 + len(page)))
            position = page[-1].id
            await asyncio.sleep(0)

    for step, number, count in steps:
        log = logs[number % LOGS]
        match step:
            case "append":
                append(log, count, epochs[log][-1])
            case "large":
                append(log, 1, epochs[log][-1], size=LARGE // 6 + 1)
            case "stale":
                append(log, 1, epochs[log][-2])
            case "claim":
                epochs[log].append(await store.claim(log))
            case "read":
                reads.append(asyncio.create_task(read_through(log, count)))
            case "cancel" if appends:
                appends[number % len(appends)].task.cancel()
            case "fail":
                bench.faults.waiting = number
            case "turn":
                for _ in range(number):
                    await asyncio.sleep(0)
            case "settle":
                await asyncio.wait([*(each.task for each in appends), *reads]) if appends or reads else None
    outcomes = await asyncio.gather(*(each.task for each in appends), return_exceptions=True)
    await asyncio.gather(*reads)
    bench.faults.waiting = 0
    # An append whose caller has gone may still be on its way; this one comes behind it.
    await store.append(uuid.uuid4().hex, new_events("the last"))
    for log in logs:
        mine = [(each, outcome) for each, outcome in zip(appends, outcomes, strict=True) if each.log == log]
        await check(store, log, mine)
        stored = len(await payloads(store, log))
        assert await store.append(log, new_events("after all"), epoch=epochs[log][-1]) == stored


async def check(store: EventStore, log: str, mine: list[tuple[Append, int | BaseException]]) -> None:
    stored = await payloads(store, log)
    place = {payload: i for i, payload in enumerate(stored)}
    assert len(place) == len(stored), "an event was stored twice"
    order: list[int] = []
    for each, outcome in mine:
        places = [place.pop(payload, None) for payload in each.payloads]
        if isinstance(outcome, int):
            assert places == list(range(outcome, outcome + len(places)))
        elif isinstance(outcome, asyncio.CancelledError):
            assert places[0] is None or places == list(range(places[0], places[0] + len(places)))
            assert places[0] is not None or set(places) == {None}
        else:
            assert isinstance(outcome, StaleOwnerError | EventStoreError)
            assert set(places) == {None}
        order += [at for at in places if at is not None]
    assert not place, "there is an event that nobody appended"
    assert order == sorted(order), "the events are not in the order of the calls"


@pytest.fixture(params=[in_memory, in_sqlite])
def stage(
    request: pytest.FixtureRequest,
) -> Iterator[tuple[asyncio.Runner, Bench]]:
    make: Callable[[], AbstractAsyncContextManager[Bench]] = request.param
    with asyncio.Runner() as runner:
        context = make()
        bench = runner.run(context.__aenter__())
        yield runner, bench
        runner.run(context.__aexit__(None, None, None))


@given(steps=STEPS)
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_log_stays_whole_under_every_interleaving(stage: tuple[asyncio.Runner, Bench], steps: Steps) -> None:
    runner, bench = stage
    runner.run(play(bench, steps))
