"""Who may work, in which order the others follow, and whose sandbox makes room."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from agent_core.events.transient import TOO_MANY_CONVERSATIONS, WAITING_FOR_TURN
from agent_core.troubles import Trouble
from server.db.database import Database, open_database
from server.db.repositories.conversations import ConversationRecord
from server.metrics import ServerMetrics
from server.session import capacity, run_queue
from server.session.capacity import Capacity
from server.session.memory_ceiling import MachineMemory
from server.session.run_queue import PlaceLostError, RunQueue, in_line
from server.session.tickets import QueuePlace, Ticket
from server.settings.settings import Settings
from tests.waiting import ticks, until


class Played:
    """A queue of runs whose owner the test plays: `resting` are those that can lose their sandbox."""

    def __init__(self, database: Database, capacity: Capacity, conditions: tuple[Callable[[], str], ...]) -> None:
        self.database = database
        self.resting: list[Ticket] = []
        self.others: dict[str, float] = {}
        self.begun: list[str] = []
        self.told: dict[str, list[QueuePlace | None]] = {}
        self.metrics = ServerMetrics()
        self.runs = RunQueue(
            capacity,
            database.conversations,
            conditions=conditions,
            others=self.others,
            free_sandbox=self.free,
            on_turn=lambda where, turn: self.told.setdefault(where, []).append(turn),
            metrics=self.metrics,
        )
        self.entering: dict[str, asyncio.Task[None]] = {}

    async def free(self, _to_work: bool) -> bool:
        if not self.resting:
            return False
        self.runs.leave(self.resting.pop(0))
        return True

    def enter(
        self, name: str, user: str = "ann", *, to_work: bool = True, number: int | None = None
    ) -> asyncio.Task[None]:
        ticket = self.runs.ticket(name, user)

        async def enter() -> None:
            await self.runs.enter(ticket, to_work=to_work, number=number)
            self.begun.append(name)

        self.entering[name] = asyncio.create_task(enter())
        return self.entering[name]

    def ends(self, name: str) -> None:
        self.runs.rest(self.runs.ticket(name, ""))


@asynccontextmanager
async def opened(folder: Path, capacity: Capacity, *conditions: Callable[[], str]) -> AsyncIterator[Played]:
    async with open_database(folder) as database:
        queue = Played(database, capacity, conditions)
        running = asyncio.create_task(queue.runs.run())
        try:
            yield queue
        finally:
            tasks = [running, *queue.entering.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def settled() -> None:
    """Whoever may begin has begun: nothing between an end and a beginning waits for anything but the loop."""
    for _ in range(50):
        await asyncio.sleep(0)


async def until_begun(queue: Played, *names: str) -> None:
    await until(lambda: len(queue.begun) >= len(names))
    await settled()
    assert queue.begun == list(names)


async def test_first_come_first_served_and_nobody_who_works_is_disturbed(tmp_path: Path) -> None:
    async with opened(tmp_path, Capacity(2, 2, 9)) as queue:
        for number in range(5):
            queue.enter(f"c{number}")
        await until_begun(queue, "c0", "c1")
        queue.ends("c1")
        await until_begun(queue, "c0", "c1", "c2")
        queue.ends("c0")
        queue.ends("c2")
        await until_begun(queue, "c0", "c1", "c2", "c3", "c4")


async def test_users_take_turns_however_many_one_of_them_has_waiting(tmp_path: Path) -> None:
    async with opened(tmp_path, Capacity(2, 2, 99)) as queue:
        for number in range(40):
            queue.enter(f"a{number}", "ann")
        await settled()
        queue.enter("b0", "bob")
        queue.enter("b1", "bob")
        await settled()
        queue.ends("a0")
        await until_begun(queue, "a0", "a1", "b0")
        queue.ends("a1")
        await until_begun(queue, "a0", "a1", "b0", "a2")
        queue.ends("b0")
        await until_begun(queue, "a0", "a1", "b0", "a2", "b1")


async def test_a_users_own_limit_holds_up_nobody_else(tmp_path: Path) -> None:
    async with opened(tmp_path, Capacity(9, 1, 99)) as queue:
        for name in ("a0", "a1", "a2"):
            queue.enter(name, "ann")
        queue.enter("b0", "bob")
        await until(lambda: queue.runs.place("a2") is not None)
        await until_begun(queue, "a0", "b0")
        turn = queue.runs.place("a2")
        assert turn is not None
        text = "Second in line: 1 of your conversations is at work, as many as may be at a time."
        assert turn == QueuePlace(2, TOO_MANY_CONVERSATIONS, text)


async def test_who_waits_for_its_own_user_is_in_nobody_elses_line(tmp_path: Path) -> None:
    async with opened(tmp_path, Capacity(2, 1, 99)) as queue:
        for name in ("a0", "b0", "a1", "a2", "c0"):
            queue.enter(name, name[0])
        await until_begun(queue, "a0", "b0")
        places = {name: queue.runs.place(name) for name in ("a1", "a2", "c0")}
        assert [place and place.position for place in places.values()] == [1, 2, 1]
        assert places["c0"] == QueuePlace(1, WAITING_FOR_TURN, f"{in_line(1)}: {queue.runs._why('working')}")
        queue.ends("b0")
        await until_begun(queue, "a0", "b0", "c0")


async def test_who_waits_is_told_its_place_as_it_moves_and_when_its_turn_has_come(tmp_path: Path) -> None:
    async with opened(tmp_path, Capacity(1, 1, 9)) as queue:
        for user in ("ann", "bob", "cem", "dan"):
            queue.enter(user, user)
        await until(lambda: [turn.position for turn in queue.told.get("dan", []) if turn] == [3])
        queue.ends("ann")
        await until(lambda: [turn.position for turn in queue.told["dan"] if turn] == [3, 2])
        queue.ends("bob")
        queue.ends("cem")
        await until(lambda: queue.told["dan"][-1] is None)
        assert queue.told["dan"][0] == QueuePlace(
            3, WAITING_FOR_TURN, "Third in line: 1 agent is at work, as many as this server has room for."
        )
        assert queue.metrics.troubles(Trouble.WAITING) == 3, "one line for each, not for each place"


async def test_places_are_true_at_every_moment_also_between_two_times_of_telling(tmp_path: Path) -> None:
    async with opened(tmp_path, Capacity(1, 1, 9)) as queue:
        for name in ("a0", "a1", "a2"):
            queue.enter(name, "ann")
        await until(lambda: len(queue.told) == 2)
        queue.enter("b0", "bob")  # has nothing at work, so it goes before all of hers
        await ticks(2)

        def positions() -> list[int | None]:
            places = [queue.runs.place(name) for name in ("b0", "a1", "a2")]
            return [place and place.position for place in places]

        assert positions() == [1, 2, 3]
        queue.ends("a0")
        assert positions() == [None, 1, 2]


async def test_a_sandbox_at_rest_makes_room_for_one_that_works(tmp_path: Path) -> None:
    async with opened(tmp_path, Capacity(9, 9, 2)) as queue:
        queue.enter("rests", to_work=False)
        queue.enter("works")
        await settled()
        queue.resting.append(queue.runs.ticket("rests", "ann"))
        queue.enter("new")
        await until(lambda: "new" in queue.begun)
        queue.enter("next")
        await settled()
        assert "next" not in queue.begun, "nobody rests"
        queue.ends("works")
        queue.resting.append(queue.runs.ticket("works", "ann"))
        await until(lambda: "next" in queue.begun)


async def test_what_only_looks_waits_behind_work_and_goes_to_the_end_of_that_when_it_has_some(tmp_path: Path) -> None:
    async with opened(tmp_path, Capacity(9, 9, 1)) as queue:
        queue.enter("up")
        await settled()
        queue.enter("looks", to_work=False)
        queue.enter("works")
        await settled()
        await queue.runs.hurry(queue.runs.ticket("looks", "ann"))
        assert [one.ticket.conversation_id for one in queue.runs._in_order()] == ["works", "looks"]
        queue.runs.calm(queue.runs.ticket("works", "ann"))
        assert [one.ticket.conversation_id for one in queue.runs._in_order()] == ["looks", "works"]


async def test_a_wait_that_is_cancelled_or_ended_leaves_the_queue(tmp_path: Path) -> None:
    async with opened(tmp_path, Capacity(1, 1, 9)) as queue:
        for name in ("a", "b", "c", "d"):
            await queue.database.conversations.create(ConversationRecord(id=name))
            queue.enter(name)
        await until(lambda: len(queue.told) == 3)
        queue.entering["b"].cancel()
        queue.runs.leave(queue.runs.ticket("c", "ann"))
        await settled()
        with pytest.raises(PlaceLostError):
            await queue.entering["c"]
        queue.ends("a")
        await until_begun(queue, "a", "d")
        assert queue.runs.place("b") is None
        await queue.database.conversations.flush()
        assert await number_of(queue, "c") is None, "it does not go on waiting after a restart"


async def test_of_two_who_wait_for_the_same_turn_one_may_go_and_both_hear_of_its_end(tmp_path: Path) -> None:
    async with opened(tmp_path, Capacity(1, 1, 9)) as queue:
        queue.enter("a")
        await settled()
        ticket = queue.runs.ticket("b", "ann")
        recovery, session = queue.enter("b"), queue.enter("b")
        await settled()
        session.cancel()
        await settled()
        assert queue.runs.is_waiting(ticket, to_work=True), "the other one waits still"
        queue.runs.leave(ticket)
        for late in (recovery, asyncio.create_task(queue.runs.enter(ticket, to_work=True))):
            with pytest.raises(PlaceLostError):
                async with asyncio.timeout(60):
                    await late


async def test_work_that_comes_to_what_waits_for_its_sandbox_keeps_its_place_over_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path, Capacity(9, 9, 1)) as queue:
        queue.enter("up")
        await settled()
        await queue.database.conversations.create(ConversationRecord(id="looks"))
        queue.enter("looks", to_work=False)
        await settled()
        await queue.runs.hurry(queue.runs.ticket("looks", "ann"))
        assert await number_of(queue, "looks") == 3
        queue.entering["looks"].cancel()
        await settled()
        assert await number_of(queue, "looks") is None, "whoever gives up has no place to keep"


async def test_what_was_in_line_goes_before_who_comes_while_the_server_begins(tmp_path: Path) -> None:
    async with opened(tmp_path, Capacity(1, 1, 9)) as queue:
        queue.runs.close()
        await queue.runs.begin_after(7)
        queue.enter("new")
        queue.enter("open", to_work=False)  # a client that has come back first
        queue.enter("waited", number=7)
        queue.enter("open", number=6)
        queue.enter("worked", number=0)
        await settled()
        assert queue.begun == []
        queue.runs.open()
        for count, names in enumerate((["worked"], ["open", "open"], ["waited"], ["new"]), start=1):
            await until(lambda: len({*queue.begun}) == count)  # noqa: B023 - asked before it changes
            await settled()
            assert queue.begun[-len(names) :] == names
            queue.ends(names[0])


async def test_a_sandbox_that_is_up_already_needs_no_room_and_counts_once(tmp_path: Path) -> None:
    async with opened(tmp_path, Capacity(9, 9, 1)) as queue:
        queue.others["a"] = 0.0
        queue.enter("b")
        queue.enter("a")
        await until_begun(queue, "a")
        assert queue.runs._sandboxes() == 1
        assert queue.others == {}


async def two_behind_one_that_works(queue: Played) -> None:
    """Where two sandboxes have room: one works, the next lacks a sandbox, and the last has its own."""
    queue.enter("works")
    queue.enter("has one", to_work=False)
    await settled()
    queue.enter("lacks one")
    queue.enter("has one")
    await settled()


async def test_who_lacks_a_sandbox_is_not_passed_again_and_again_by_those_that_have_theirs(tmp_path: Path) -> None:
    async with opened(tmp_path, Capacity(1, 1, 2)) as queue:
        await two_behind_one_that_works(queue)
        queue.ends("works")
        await ticks(20)  # it comes to rest a moment later
        queue.resting.append(queue.runs.ticket("works", "ann"))
        queue.runs._news.set()
        await until_begun(queue, "works", "has one", "lacks one")


async def test_where_no_sandbox_can_be_freed_a_turn_is_not_left_unused(tmp_path: Path) -> None:
    async with opened(tmp_path, Capacity(1, 1, 2)) as queue:
        await two_behind_one_that_works(queue)
        queue.ends("works")  # but runs a command of its user's for hours
        await until(lambda: queue.begun == ["works", "has one", "has one"])


def test_who_is_far_behind_is_told_seldom_and_the_first_ones_always() -> None:
    told: list[int] = []
    for position in range(1000, 0, -1):
        place = QueuePlace(position, WAITING_FOR_TURN, in_line(position))
        last = QueuePlace(told[-1], WAITING_FOR_TURN, in_line(told[-1])) if told else None
        if run_queue._is_news(place, last):
            told.append(position)
    assert told[-10:] == list(range(10, 0, -1))
    assert len(told) < 60
    assert all(earlier - later <= earlier / 10 + 1 for earlier, later in itertools.pairwise(told))


async def test_the_next_step_of_who_works_waits_for_nobody(tmp_path: Path) -> None:
    async with opened(tmp_path, Capacity(1, 1, 9)) as queue:
        queue.enter("a")
        queue.enter("b")
        await settled()
        ticket = queue.runs.ticket("a", "ann")
        async with asyncio.timeout(60):
            await queue.runs.enter(ticket, to_work=True, after=12)
        queue.runs.rest(ticket, at=11)
        assert ticket.works, "it rested before it took this turn"
        queue.runs.rest(ticket, at=13)
        await until_begun(queue, "a", "b")


async def test_a_condition_holds_all_up_and_they_go_on_by_themselves(tmp_path: Path) -> None:
    problem = "The machine has no memory left."
    async with opened(tmp_path, Capacity(9, 9, 9), lambda: problem) as queue:
        queue.enter("a")
        await until(lambda: queue.told.get("a") == [QueuePlace(1, WAITING_FOR_TURN, f"First in line: {problem}")])
        problem = ""
        await until(lambda: queue.begun == ["a"])


async def test_places_are_kept_over_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path, Capacity(1, 1, 9)) as queue:
        for name in ("a", "b", "c"):
            await queue.database.conversations.create(ConversationRecord(id=name))
            queue.enter(name)
        await until(lambda: len(queue.told) == 2)
        await queue.database.conversations.flush()
        numbers = [await number_of(queue, name) or 0 for name in ("a", "b", "c")]
        assert numbers[0] == 0
        assert 0 < numbers[1] < numbers[2]
    async with opened(tmp_path, Capacity(1, 1, 9)) as queue:
        await queue.runs.begin_after(numbers[2])
        for name, number in (("c", numbers[2]), ("b", numbers[1]), ("a", 0)):
            queue.enter(name, number=number)
        queue.enter("new")
        order = ["c", "a", "b", "new"]  # the first to be asked for had room
        for count, name in enumerate(order, start=1):
            await until_begun(queue, *order[:count])
            queue.ends(name)
        await queue.database.conversations.flush()
        assert [await number_of(queue, name) for name in ("a", "b", "c")] == [None, None, None]


async def number_of(queue: Played, name: str) -> int | None:
    record = await queue.database.conversations.get(name)
    assert record is not None
    return record.waiting_number


@settings(max_examples=12)
@given(
    arrivals=st.lists(st.sampled_from("abc"), min_size=1, max_size=30),
    working=st.integers(1, 3),
    per_user=st.integers(1, 3),
    sandboxes=st.integers(1, 4),
)
def test_limits_hold_everybody_is_served_and_each_users_order_is_kept(
    tmp_path_factory: pytest.TempPathFactory, arrivals: list[str], working: int, per_user: int, sandboxes: int
) -> None:
    async def run() -> None:
        async with opened(tmp_path_factory.mktemp("queue"), Capacity(working, per_user, sandboxes)) as queue:
            runs = queue.runs
            for number, user in enumerate(arrivals):
                queue.enter(f"{user}{number:02}", user)
            served = 0
            async with asyncio.timeout(60):
                while served < len(arrivals):
                    await until(lambda: len(queue.begun) > served)  # noqa: B023 - asked before it changes
                    at_work = [one for one in runs._tickets.values() if one.works]
                    assert len(at_work) <= working
                    assert sum(one.has_sandbox for one in runs._tickets.values()) <= sandboxes
                    for user in "abc":
                        assert sum(one.user_id == user for one in at_work) <= per_user
                    name = queue.begun[served]
                    queue.ends(name)
                    queue.resting.append(runs.ticket(name, name[0]))
                    served += 1
            for user in "abc":
                theirs = [name for name in queue.begun if name[0] == user]
                assert theirs == sorted(theirs)

    asyncio.run(run())


def test_a_place_is_said_as_people_say_it() -> None:
    assert [in_line(position) for position in (1, 3, 10, 11)] == [
        "First in line",
        "Third in line",
        "Tenth in line",
        "Number 11 in line",
    ]


def test_what_is_left_open_is_reckoned_from_the_machine() -> None:
    reckoned = Capacity.of(Settings(), cores=2, memory_mb=24 * 1024)
    assert (reckoned.working, reckoned.per_user, reckoned.sandboxes) == (92, 92, 92)
    for cores, memory_mb, working, sandboxes in ((1, 512, 2, 2), (1, 64 * 1024, 250, 252), (128, 2**20, 4092, 4092)):
        found = Capacity.of(Settings(), cores=cores, memory_mb=memory_mb)
        assert (found.working, found.sandboxes) == (working, sandboxes)
    assert "250 for the one processor" in Capacity.of(Settings(), cores=1, memory_mb=512).origin
    chosen = Settings(max_concurrent_conversations=3, max_working_conversations=5, max_sandboxes=7)
    assert Capacity.of(chosen, cores=2, memory_mb=512) == Capacity(5, 3, 7, "all as set")
    for field in ("max_concurrent_conversations", "max_working_conversations", "max_sandboxes"):
        with pytest.raises(ValidationError, match="greater than or equal to 1"):
            Settings.model_validate({field: 0})


def test_sandboxes_of_an_engine_are_not_in_the_control_group_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    gigabyte = 1024**3
    monkeypatch.setattr(capacity, "machine_memory", lambda: MachineMemory(2 * gigabyte, gigabyte))
    monkeypatch.setattr(capacity, "whole_memory", lambda: MachineMemory(33 * gigabyte, gigabyte))
    of_local, of_docker = (Capacity.of(Settings(sandbox=name)).sandboxes for name in ("local", "docker"))
    assert (of_local, of_docker) == (4, 128)
