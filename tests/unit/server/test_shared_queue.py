"""Several servers with one queue: limits and order hold for all of them together, whatever becomes of one."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from agent_core.errors import DrydockError
from server.conversation_manager.shared_queue import SharedQueue
from server.db.database import Database, open_database
from server.db.repositories.conversations import ConversationRecord
from server.db.repositories.leases import LeaseRepository
from server.db.repositories.turns import SharedTurn, TurnRepository, read_turn
from server.db.tables import leases, servers
from server.metrics import ServerMetrics
from server.session.capacity import Capacity
from server.session.run_queue import RunQueue
from server.session.tickets import QueuePlace, Ticket
from tests.waiting import ticks, until

LONG = 2**62


class PlayedServer:
    """A server of several, whose conversations the test plays; what it tells the others comes at once."""

    def __init__(self, name: str, cluster: PlayedCluster, capacity: Capacity) -> None:
        self.name = name
        self.cluster = cluster
        self.resting: list[Ticket] = []
        self.told: dict[str, QueuePlace | None] = {}
        self.runs = RunQueue(
            capacity,
            cluster.database.conversations,
            conditions=[lambda: self.problem],
            others={},
            free_sandbox=self._free,
            on_turn=self.told.__setitem__,
            metrics=ServerMetrics(),
        )
        self.problem = ""
        turns = TurnRepository(cluster.database.engines, cluster.database.writer)
        self.shared = SharedQueue(self.runs, turns, server_id=lambda: self.name, notify=self._notify)
        self.tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        row = {"id": self.name, "url": "", "expires_at": LONG}
        await self.cluster.change(insert(servers), row)
        await self.shared.begin(LeaseRepository(self.cluster.database.engines, self.cluster.database.writer))
        self.runs._numbers = self.cluster.numbers  # moments are nearly in order, as nearly as clocks are read
        for work in (self.runs.run, self.shared.run, self.shared.make_room):
            self.tasks.append(asyncio.create_task(work()))

    async def dies(self) -> None:
        """From one moment to the next; its time is over at once."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.cluster.change(delete(servers).where(servers.c.id == self.name))
        del self.cluster.servers[self.name]

    async def enter(self, name: str, user: str = "ann", *, to_work: bool = True, number: int | None = None) -> None:
        """Have it in the queue, in its place."""
        log = leases.c.conversation_id == name
        await self.cluster.change(delete(leases).where(log))
        await self.cluster.change(insert(leases), {"conversation_id": name, "owner": self.name, "epoch": 1})
        ticket = self.runs.ticket(name, user)

        async def enter() -> None:
            await self.runs.enter(ticket, to_work=to_work, number=number)
            self.cluster.begun.append(name)

        self.tasks.append(asyncio.create_task(enter()))
        await ticks(2)

    def ends(self, name: str, *, keeps_sandbox: bool = False) -> None:
        ticket = self.runs.ticket(name, "")
        self.runs.rest(ticket)
        if not keeps_sandbox:
            self.runs.leave(ticket)
        else:
            self.resting.append(ticket)

    def _notify(self, message: Mapping[str, Any]) -> None:
        for other in self.cluster.servers.values():
            if other is not self:
                other.shared.heard(message)

    async def _free(self, _to_work: bool) -> bool:
        if not self.resting:
            return False
        self.runs.leave(self.resting.pop(0))
        return True


class PlayedCluster:
    def __init__(self, database: Database) -> None:
        self.database = database
        self.servers: dict[str, PlayedServer] = {}
        self.begun: list[str] = []
        self.numbers = itertools.count(1)

    async def add(self, name: str, capacity: Capacity) -> PlayedServer:
        server = self.servers[name] = PlayedServer(name, self, capacity)
        await server.start()
        return server

    async def change(self, statement: Any, row: Mapping[str, Any] | None = None) -> None:
        await self.database.writer.execute(statement, row)

    async def until_begun(self, *names: str) -> None:
        await until(lambda: len(self.begun) >= len(names))
        assert self.begun == list(names)

    async def stored(self) -> dict[str, tuple[bool, bool]]:
        """Which sandboxes are up, and who works, as any server reads it."""
        rows = await self.database.engines.select(select(leases.c.conversation_id, leases.c.turn))
        return {row.conversation_id: (row.turn[1], row.turn[2]) for row in rows if row.turn}


@asynccontextmanager
async def cluster_in(folder: Path) -> AsyncIterator[PlayedCluster]:
    async with open_database(folder) as database:
        cluster = PlayedCluster(database)
        try:
            yield cluster
        finally:
            tasks = [task for server in cluster.servers.values() for task in server.tasks]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def place(server: PlayedServer, name: str) -> tuple[int, str] | None:
    found = server.runs.place(name)
    return None if found is None else (found.position, found.text)


async def test_limits_and_order_are_those_of_all_servers(tmp_path: Path) -> None:
    async with cluster_in(tmp_path) as cluster:
        one, other = [await cluster.add(name, Capacity(2, 1, 9)) for name in ("one", "other")]
        await one.enter("a1", "ann")
        await cluster.until_begun("a1")
        await other.enter("a2", "ann")  # her own limit, which she has reached at the other server
        text = "First in line: 1 of your conversations is at work, as many as may be at a time."
        await until(lambda: place(other, "a2") == (1, text))
        await other.enter("b1", "bob")
        await cluster.until_begun("a1", "b1")
        await one.enter("c1", "cid")
        await other.enter("d1", "dan")
        text = "First in line: 2 agents are at work, as many as these servers have room for."
        await until(lambda: place(one, "c1") == (1, text) and (place(other, "d1") or (0,))[0] == 2)
        other.ends("b1")
        await cluster.until_begun("a1", "b1", "c1")
        one.ends("a1")  # who was not served yet goes before her, who came first
        await cluster.until_begun("a1", "b1", "c1", "d1")
        one.ends("c1")
        await cluster.until_begun("a1", "b1", "c1", "d1", "a2")
        await until(cluster.stored)
        assert await cluster.stored() == {"d1": (True, True), "a2": (True, True)}


async def test_what_a_dead_server_had_does_not_count_and_keeps_its_places(tmp_path: Path) -> None:
    async with cluster_in(tmp_path) as cluster:
        one, other = [await cluster.add(name, Capacity(1, 1, 9)) for name in ("one", "other")]
        numbers = {}
        for name in ("a", "b"):
            await cluster.database.conversations.create(ConversationRecord(id=name))
            await one.enter(name, name)
            await until(lambda: name in cluster.begun or place(one, name))  # noqa: B023 - asked before it changes
        await other.enter("c", "cid")
        await until(lambda: (place(other, "c") or (0,))[0] == 2)
        record = await cluster.database.conversations.get("b")
        assert record is not None
        numbers["b"] = record.waiting_number
        await one.dies()
        await other.enter("b", "b", number=numbers["b"])
        await other.enter("a", "a", number=0)  # it was at work
        await until(lambda: len(cluster.begun) == 2)
        for _ in range(2):
            latest = len(cluster.begun)
            other.ends(cluster.begun[-1])
            await until(lambda: len(cluster.begun) > latest)  # noqa: B023 - asked before it changes
        assert sorted(cluster.begun[1:]) == ["a", "b", "c"]
        assert cluster.begun.index("b", 1) < cluster.begun.index("c", 1) or cluster.begun[1] == "c"


async def test_a_server_that_may_not_begin_anything_holds_nobody_up(tmp_path: Path) -> None:
    async with cluster_in(tmp_path) as cluster:
        one, other = [await cluster.add(name, Capacity(1, 1, 9)) for name in ("one", "other")]
        await other.enter("a", "ann")
        await cluster.until_begun("a")
        one.problem = "the disk is full"
        await one.enter("b", "bob")
        await other.enter("c", "cid")
        other.ends("a")
        await cluster.until_begun("a", "c")
        one.problem = ""
        other.ends("c")
        await cluster.until_begun("a", "c", "b")


async def test_a_sandbox_at_rest_at_one_server_makes_room_for_another(tmp_path: Path) -> None:
    async with cluster_in(tmp_path) as cluster:
        one, other = [await cluster.add(name, Capacity(9, 9, 1)) for name in ("one", "other")]
        await one.enter("a", "ann")
        await cluster.until_begun("a")
        one.ends("a", keeps_sandbox=True)
        await other.enter("b", "bob")
        await cluster.until_begun("a", "b")
        assert await cluster.stored() == {"b": (True, True)}


async def test_a_turn_that_nobody_wants_any_more_is_given_to_the_next(tmp_path: Path) -> None:
    async with cluster_in(tmp_path) as cluster:
        one, other = [await cluster.add(name, Capacity(1, 1, 9)) for name in ("one", "other")]
        await one.enter("a", "ann")
        await cluster.until_begun("a")
        await other.enter("b", "bob")
        await one.enter("c", "cid")
        await until(lambda: place(other, "b") is not None)
        other.runs.forget("b")
        one.ends("a")
        await cluster.until_begun("a", "c")


async def test_what_was_not_stored_is_nobodys_turn(tmp_path: Path) -> None:
    async with cluster_in(tmp_path) as cluster:
        one = await cluster.add("one", Capacity(1, 1, 9))
        original, failures = cluster.database.writer.change, 2

        async def failing(apply: Callable[[AsyncConnection], Any], **options: Any) -> Any:
            nonlocal failures
            is_exchange = apply.__qualname__.startswith("TurnRepository.exchange")
            if is_exchange and failures:
                failures -= 1
                assert not cluster.begun

                async def breaks(connection: AsyncConnection) -> None:
                    await apply(connection)
                    raise DatabaseAwayError

                return await original(breaks, **options)
            return await original(apply, **options)

        cluster.database.writer.change = failing  # type: ignore[method-assign]
        await one.enter("a", "ann")
        await cluster.until_begun("a")
        assert not failures
        assert await cluster.stored() == {"a": (True, True)}


class DatabaseAwayError(DrydockError):
    """What the played database says."""


@settings(max_examples=15, deadline=None)
@given(
    arrivals=st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["one", "other"])), min_size=1, max_size=12),
    limits=st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3)),
)
def test_no_limit_is_passed_and_everybody_is_served(
    tmp_path_factory: Any, arrivals: list[tuple[str, str]], limits: tuple[int, int, int]
) -> None:
    working, per_user, sandboxes = limits

    async def run() -> None:
        async with cluster_in(tmp_path_factory.mktemp("queue")) as cluster:
            for name in ("one", "other"):
                await cluster.add(name, Capacity(working, per_user, sandboxes))
            where = {}
            for number, (user, server) in enumerate(arrivals):
                where[f"{user}{number:02}"] = cluster.servers[server]
                await cluster.servers[server].enter(f"{user}{number:02}", user)
            for served in range(len(arrivals)):
                await until(lambda: len(cluster.begun) > served, seconds=20)  # noqa: B023 - asked before it changes
                tickets = [one for server in cluster.servers.values() for one in server.runs._tickets.values()]
                at_work = Counter(one.user_id for one in tickets if one.works)
                assert at_work.total() <= working
                assert max(at_work.values()) <= per_user
                assert sum(one.has_sandbox for one in tickets) <= sandboxes
                name = cluster.begun[served]
                where[name].ends(name, keeps_sandbox=served % 2 == 0)
            for user in "abc":
                theirs = [name for name in cluster.begun if name[0] == user]
                assert sorted(theirs) == sorted(name for name in where if name[0] == user)

    asyncio.run(run())


def test_a_turn_is_read_as_it_was_stored() -> None:
    turn = SharedTurn("c", "ann", has_sandbox=True, works=True, number=7, to_work=True, served=3, server="s")
    assert read_turn("c", "s", list(turn[1:7])) == turn
