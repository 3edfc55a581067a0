"""The guard against crash loops, on real logs: each guard is one life of a server, which ends by a crash."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent_core.errors import STORAGE_UNAVAILABLE, EventStoreError
from agent_core.events.control import AgentState, AgentStateChanged
from agent_core.events.llm_events import MessageEvent
from agent_core.events.messages import Message
from agent_core.events.serialization import AnyEvent
from agent_core.events.store import child_id
from agent_core.events.stream import EventStream
from agent_core.troubles import Trouble
from server.db.database import Database, open_database
from server.db.repositories.conversations import ConversationRecord
from server.metrics import ServerMetrics
from server.session import crash_guard
from server.session.capacity import Capacity
from server.session.crash_guard import FRUITLESS_LIVES, HELD_BACK, LIFE, WAITING_LIVES, CrashGuard, Life
from server.session.recovery import Recovery
from server.session.run_queue import RunQueue
from tests.waiting import ticks, until

LOADING = AgentStateChanged(agent_state=AgentState.LOADING)
STEP = MessageEvent(source="agent", llm_message=Message.assistant("A step."))
REQUEST = MessageEvent(source="user", llm_message=Message.user("Go."))


@dataclass
class World:
    database: Database
    taken_up: list[str] = field(default_factory=list)
    starting: list[asyncio.Task[None]] = field(default_factory=list)
    metrics: ServerMetrics = field(default_factory=ServerMetrics)

    def guard(self, *, retry_seconds: float = 0) -> CrashGuard:
        async def take_up(conversation_id: str) -> None:
            starting = asyncio.create_task(start(conversation_id))
            self.starting.append(starting)

        async def start(conversation_id: str) -> None:
            await guard.admit(await self.record(conversation_id))
            self.taken_up.append(conversation_id)

        guard = CrashGuard(
            self.database.conversations,
            self.database.events,
            retry_seconds=retry_seconds,
            tell=self.log,
            take_up=take_up,
            metrics=self.metrics,
        )
        return guard

    async def log(self, conversation_id: str, events: Sequence[AnyEvent]) -> None:
        stream = await EventStream.open(conversation_id, self.database.events)
        await stream.add_events(events)
        stream.close()

    async def new(self, conversation_id: str) -> None:
        """A conversation that was loaded and told something, when its server ended."""
        await self.database.conversations.create(ConversationRecord(id=conversation_id, agent_state="running"))
        await self.log(conversation_id, [LOADING, REQUEST])

    async def record(self, conversation_id: str) -> ConversationRecord:
        record = await self.database.conversations.get(conversation_id)
        assert record is not None
        return record

    async def live(self, conversation_id: str, *events: AnyEvent, guard: CrashGuard | None = None) -> bool:
        """One life of a server, in which these events are stored; whether the conversation was let live."""
        guard = guard or self.guard()
        record = await self.record(conversation_id)
        if await guard.holds_back(record):
            return False
        await guard.admit(record)
        await guard.begin(conversation_id)
        await self.log(conversation_id, [LOADING, *events])
        return True

    async def told(self, conversation_id: str) -> int:
        stored = await self.database.events.read(conversation_id, limit=1000)
        return sum(HELD_BACK.encode() in event.payload for event in stored)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with open_database(tmp_path) as database:
        yield World(database)


@asynccontextmanager
async def at_work(guard: CrashGuard) -> AsyncIterator[None]:
    task = asyncio.create_task(guard.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_three_lives_that_came_to_nothing_are_a_loop_and_it_is_told_once(world: World) -> None:
    await world.new("a")  # its first life
    lives = 1
    while await world.live("a"):
        lives += 1
    assert lives == FRUITLESS_LIVES == 3
    assert not await world.live("a")
    assert await world.told("a") == 1
    assert world.metrics.troubles(Trouble.CRASH_LOOP) == 2


async def test_progress_clears_the_count(world: World) -> None:
    await world.new("a")
    for _ in range(3):
        assert await world.live("a")
        assert await world.live("a", STEP)
    for _ in range(FRUITLESS_LIVES):
        assert await world.live("a")
    assert not await world.live("a")


async def test_a_step_of_a_sub_agent_is_progress(world: World) -> None:
    await world.new("a")
    for _ in range(6):
        assert await world.live("a")
        await world.log(child_id("a", "helper"), [LOADING, STEP])
    for _ in range(FRUITLESS_LIVES):
        assert await world.live("a")
    assert not await world.live("a")


async def test_a_life_that_the_server_ended_in_order_is_no_crash(world: World) -> None:
    await world.new("a")
    for _ in range(6):
        guard = world.guard()
        assert await world.live("a", guard=guard)
        await guard.ended_in_order("a")


async def test_who_waits_for_a_command_of_an_earlier_life_is_no_loop_for_long(world: World) -> None:
    await world.new("a")
    for _ in range(WAITING_LIVES):
        guard = world.guard()
        async with at_work(guard):
            assert await world.live("a", guard=guard)
            guard.found_running("a")

            async def is_noted() -> bool:
                return bool((await world.record("a")).options[LIFE]["found_running"])

            await until(is_noted)
    assert not await world.live("a")


async def test_rest_makes_all_lives_before_it_count_for_nothing(world: World) -> None:
    await world.new("a")
    guard = world.guard()
    assert await world.live("a", guard=guard)
    await guard.came_to_rest("a")
    assert LIFE not in (await world.record("a")).options


async def test_suspects_live_one_after_the_other_so_that_only_the_one_is_held_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crash_guard, "TRIAL_SECONDS", 0.5)
    names = ["a", "poison", "b", "c"]
    for name in names:
        await world.new(name)
    crashes = 0
    for _ in range(10):
        guard, crashed = world.guard(), asyncio.Event()

        async def live(name: str, guard: CrashGuard = guard, crashed: asyncio.Event = crashed) -> None:
            if await world.live(name, guard=guard):
                if name == "poison":
                    crashed.set()
                    await asyncio.Event().wait()
                await world.log(name, [STEP])
                guard.made_step(name)

        async def live_all(live: Callable[[str], Coroutine[Any, Any, None]] = live) -> None:
            async with asyncio.TaskGroup() as group:
                for name in names:
                    group.create_task(live(name))

        tasks = [asyncio.create_task(live_all()), asyncio.create_task(_until_set(crashed))]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        if not crashed.is_set():
            break
        crashes += 1
    assert crashes == FRUITLESS_LIVES - 1  # and the first, from which all four were taken over
    assert [name for name in names if guard.is_held(name)] == ["poison"]
    assert [await world.told(name) for name in names] == [0, 1, 0, 0]


async def _until_set(event: asyncio.Event) -> None:
    await event.wait()


async def held_back(world: World, conversation_id: str) -> None:
    await world.new(conversation_id)
    for _ in range(FRUITLESS_LIVES - 1):
        assert await world.live(conversation_id)


async def test_what_is_held_back_is_taken_up_by_itself_one_after_the_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crash_guard, "TRIAL_SECONDS", 30)
    for name in ("a", "b"):
        await held_back(world, name)
    guard = world.guard(retry_seconds=0.05)
    for name in ("a", "b"):
        assert not await world.live(name, guard=guard)
    async with at_work(guard):
        await until(lambda: len(world.taken_up) == 1)
        await ticks(20)
        (first,) = world.taken_up
        assert not guard.is_held(first)
        guard.made_step(first)
        await until(lambda: len(world.taken_up) == 2)
    assert sorted(world.taken_up) == ["a", "b"]


async def test_what_cannot_be_taken_up_now_is_tried_again_later(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crash_guard, "AGAIN_SECONDS", 0.05)
    await held_back(world, "a")
    attempts: list[float] = []
    was_seen = False

    async def take_up(_: str) -> None:
        attempts.append(time.monotonic())
        if len(attempts) < 3 or not was_seen:
            raise EventStoreError("the disk reported an error", code=STORAGE_UNAVAILABLE)

    guard = world.guard(retry_seconds=0.01)
    guard._take_up = take_up
    async with at_work(guard):
        assert not await world.live("a", guard=guard)
        was_seen = True
        await until(lambda: len(attempts) >= 3)
        await until(lambda: not guard.is_held("a"))
        assert not guard.is_held("a")
    assert all(later - earlier >= 0.05 for earlier, later in itertools.pairwise(attempts))


async def test_each_failure_after_that_makes_the_wait_longer(world: World) -> None:
    await held_back(world, "a")
    pauses = []
    for _ in range(3):
        guard = world.guard(retry_seconds=1000)
        assert not await world.live("a", guard=guard)
        pauses.append(round(guard._held["a"].due - guard._began))
        guard.release("a")
        assert await world.live("a", guard=guard)
    assert pauses == [1000, 2000, 4000]


async def test_its_user_has_it_go_on_at_once_and_one_more_crash_holds_it_back_again(world: World) -> None:
    await held_back(world, "a")
    guard = world.guard()
    record = await world.record("a")
    assert await guard.holds_back(record)
    waiting = asyncio.create_task(guard.admit(record))
    await ticks(5)
    assert not waiting.done()
    guard.release("a")
    await waiting
    assert not await world.live("a")


async def test_who_only_waited_for_its_turn_has_not_lived(world: World) -> None:
    await world.new("a")
    await world.database.conversations.update("a", waiting_number=7)
    for _ in range(FRUITLESS_LIVES + 1):
        guard = world.guard()
        assert not await guard.holds_back(await world.record("a"))
        assert not (await guard._judged["a"]).is_suspect


def _queue(world: World) -> RunQueue:
    return RunQueue(
        Capacity(9, 9, 9),
        world.database.conversations,
        others={},
        free_sandbox=_frees_nothing,
        on_turn=lambda _where, _turn: None,
        metrics=world.metrics,
    )


async def test_recovery_leaves_the_ticket_of_one_that_is_held_back_and_open(world: World) -> None:
    await held_back(world, "a")
    queue = _queue(world)
    ticket = queue.ticket("a", "ann")
    guard = world.guard()

    async def start(conversation_id: str) -> None:
        world.taken_up.append(conversation_id)

    await Recovery(start, queue, guard, concurrency=1).resume_all([await world.record("a")])
    assert guard.is_held("a")
    assert queue.ticket("a", "ann") is ticket
    assert not world.taken_up


async def test_who_waits_to_be_started_has_no_life_yet_and_those_with_the_fewest_failures_are_first(
    world: World,
) -> None:
    for name in ("a", "b", "c"):
        await world.new(name)
    assert await world.live("a")
    await world.database.conversations.set_option("b", LIFE, asdict(Life()))  # whose server ended in order
    queue = _queue(world)
    guard, records = world.guard(), [await world.record(name) for name in ("a", "b", "c")]

    async def start(conversation_id: str) -> None:
        world.taken_up.append(conversation_id)
        guard.made_step(conversation_id)
        if conversation_id == "c":
            await asyncio.Event().wait()

    resuming = asyncio.create_task(Recovery(start, queue, guard, concurrency=1).resume_all(records))
    await until(lambda: len(world.taken_up) == 2)
    await ticks(20)
    assert world.taken_up == ["b", "c"]
    assert [guard.failures(name) for name in ("a", "b", "c")] == [2, 0, 1]
    stored = [(await world.record(name)).options[LIFE] for name in ("a", "b", "c")]
    assert [life["fruitless"] for life in stored] == [1, 0, 1]  # that of "a" is still its last one's
    resuming.cancel()
    await asyncio.wait([resuming])


async def _frees_nothing(_to_work: bool) -> bool:
    return False
