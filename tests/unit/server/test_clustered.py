"""Managers of several servers over one PostgreSQL, in one process: what they take, give back, and deliver once."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url

from agent_core.events.llm_events import MessageEvent
from agent_core.events.serialization import from_payload, to_payload
from agent_core.events.transient import OutputDelta
from agent_core.testing.fake_sandbox import FakeProvider
from server.auth.identity import Identity
from server.conversation_manager import clustered, inbox
from server.conversation_manager.clustered import ClusteredConversationManager
from server.conversation_manager.conversation_manager import ManagerParts
from server.db import redis_notices
from server.db.database import Database, open_database
from server.db.engine import DatabaseSettings
from server.db.errors import DatabaseError
from server.db.redis_notices import RedisNotices
from server.db.repositories.conversations import ConversationRecord
from server.errors import EndingError
from server.session.sandboxes import Sandboxes, SandboxSelection
from server.session.titles import Announcements, TitleWriter
from server.settings.settings import Settings
from tests.pgbouncer import pgbouncer
from tests.postgresql import Cluster
from tests.redis_server import RedisServer
from tests.unit.server.conftest import FakeAgents, hello
from tests.waiting import until

pytestmark = pytest.mark.postgresql


@dataclass
class Server:
    """One of several: its manager, and what that was made from."""

    manager: ClusteredConversationManager
    database: Database
    agents: FakeAgents

    async def new(self, conversation_id: str) -> str:
        await self.database.conversations.create(ConversationRecord(id=conversation_id))
        return conversation_id

    async def is_owner(self, conversation_id: str) -> bool:
        lease = await self.manager._leases.get(conversation_id)
        return lease is not None and lease.owner == self.manager.server_id

    async def take(self, conversation_id: str) -> None:
        async with self.manager._holding(conversation_id):
            assert await self.manager._lease(conversation_id) is None
            assert await self.is_owner(conversation_id)

    async def said(self, conversation_id: str) -> list[str]:
        log = await self.database.events.read(conversation_id, after=-1, limit=100)
        events = [from_payload(one.payload, one.id, conversation_id) for one in log]
        return [str(one.client_key) for one in events if isinstance(one, MessageEvent)]

    async def put(self, conversation_id: str, key: str, *, after: int = -1) -> str:
        """A letter of a client that said this by way of another server."""
        return await self.manager._letters.put(conversation_id, to_payload(saying(key)), after=after)


def saying(key: str) -> MessageEvent:
    return hello(key).model_copy(update={"client_key": key})


class Servers:
    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self._url = url

    @asynccontextmanager
    async def one(self, name: str = "first", **values: Any) -> AsyncIterator[Server]:
        folder = self._folder / name
        if name != "first":
            folder.mkdir(mode=0o700)
            shutil.copy2(self._folder / "first" / "secret.key", folder)
        provider = FakeProvider()

        async def choose() -> SandboxSelection:
            return SandboxSelection(provider, "fake")

        settings = Settings.model_validate({"data_dir": folder, "cull_interval_seconds": 0.01, **values})
        async with (
            open_database(folder, DatabaseSettings(url=self._url)) as database,
            Sandboxes(
                settings,
                instance_id=database.instance_id,
                choose=choose,
                known_ids=database.conversations.ids,
            ) as sandboxes,
        ):
            agents = FakeAgents(database.events, sandboxes)
            parts = ManagerParts(
                settings=settings,
                database=database,
                sandboxes=sandboxes,
                agents=agents,
                titles=TitleWriter(enabled=False),
                announcements=Announcements(),
            )
            async with ClusteredConversationManager(parts) as manager:
                yield Server(manager, database, agents)


@pytest.fixture
def servers(tmp_path: Path, postgresql_url: str) -> Servers:
    return Servers(tmp_path, postgresql_url)


@pytest.fixture
async def server(servers: Servers) -> AsyncIterator[Server]:
    async with servers.one() as running:
        yield running


async def test_what_is_wanted_again_while_it_is_given_back_is_kept(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    await server.new("a")
    await server.take("a")
    began, go_on = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        began.set()
        await go_on.wait()

    monkeypatch.setattr(server.manager, "_write_touched", slow)
    giving = asyncio.create_task(server.manager._give_back())
    await began.wait()
    async with server.manager._holding("a"):
        taking = asyncio.create_task(server.take("a"))
        await asyncio.sleep(0.05)
        go_on.set()
        await asyncio.gather(giving, taking)
        assert await server.is_owner("a")
    assert "a" in server.manager._mine


async def test_a_lease_whose_server_is_lost_before_it_hears_of_it_is_taken_anew(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    await server.new("a")
    manager, take = server.manager, server.manager._leases.take

    async def lost_meanwhile(*names: str) -> Any:
        monkeypatch.undo()
        lease = await take(*names)
        former, manager._membership.server_id = manager.server_id, ""
        await manager._lost()
        await manager._membership._register(former)
        return lease

    monkeypatch.setattr(manager._leases, "take", lost_meanwhile)
    await server.take("a")


async def test_a_lease_that_the_database_has_lost_is_given_up(server: Server) -> None:
    await server.manager.deliver(await server.new("a"), hello())
    (agent,) = server.agents.made
    await server.database.writer.execute(text("DELETE FROM leases"))
    await until(lambda: agent.closed_with)
    assert agent.closed_with == (False, "keep")
    await server.manager.deliver("a", hello())  # and taken anew when it is wanted
    assert await server.is_owner("a")


async def test_a_lease_whose_answer_was_lost_is_not_kept_for_ever(server: Server) -> None:
    await server.new("a")
    await server.manager._leases.take("a", server.manager.server_id)
    assert await server.is_owner("a")

    async def is_free() -> bool:
        return await server.manager._leases.get("a") is None

    await until(is_free)


async def test_what_comes_by_two_ways_at_once_is_stored_once(server: Server) -> None:
    """A client has said it by way of a server that then stood still, and says it again to the one that goes on."""
    await server.new("a")
    server.agents.open_seconds = 0.1
    letter = await server.put("a", "k")
    await asyncio.gather(
        server.manager.deliver("a", saying("k"), after=-1),
        *(server.manager._inbox.serve("a") for _ in range(4)),
        server.manager.deliver("a", saying("k"), after=-1),
    )
    await until(lambda: server.manager._letters.answer_to(letter))
    assert await server.said("a") == ["k"]


async def test_letters_are_taken_once_each_and_in_order_by_however_many_at_once(server: Server) -> None:
    await server.new("a")
    await server.take("a")
    server.agents.open_seconds = 0.05
    keys = [str(number) for number in range(5)]
    for key in keys:
        await server.put("a", key)
    serving = []
    for _ in range(5):
        serving.append(asyncio.create_task(server.manager._inbox.serve("a")))
        await asyncio.sleep(0.02)
    await asyncio.gather(*serving)
    assert await server.said("a") == keys


async def test_whose_answer_cannot_be_looked_for_is_not_told_that_nothing_was_taken(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    await server.new("a")
    answer_to, failures = server.manager._letters.answer_to, 2

    async def failing(letter: str) -> Any:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise DatabaseError("away", code="storage_unavailable")
        return await answer_to(letter)

    monkeypatch.setattr(server.manager._letters, "answer_to", failing)
    monkeypatch.setattr(inbox, "ANSWER_SECONDS", 0.01)
    assert (await server.manager._inbox.post("a", saying("k"), None)).id >= 0
    assert await server.said("a") == ["k"]


async def test_it_looks_on_as_soon_as_the_database_is_back(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustered, "LOOK_SECONDS", 0.01)
    looks, everything = 0, server.manager._leases.all

    async def away() -> Any:
        nonlocal looks
        looks += 1
        if looks < 20:
            raise DatabaseError("away", code="storage_unavailable")
        return await everything()

    monkeypatch.setattr(server.manager._leases, "all", away)
    await until(lambda: looks > 22, seconds=30)  # it used to wait longer after each failure, up to a minute


async def test_what_is_carried_on_elsewhere_is_not_said_to_be_gone(server: Server) -> None:
    await server.manager.deliver(await server.new("a"), hello())
    session = server.manager._local._sessions["a"]
    await session.end(stopped=False)
    with pytest.raises(EndingError):
        await session.look()
    with pytest.raises(EndingError):
        await session.send(hello())


async def test_each_conversation_is_handed_over_as_soon_as_it_is_suspended(servers: Servers) -> None:
    async with servers.one() as first, servers.one("second") as second:
        for name in ("slow", "quick"):
            await first.manager.deliver(await first.new(name), hello())
        go_on = asyncio.Event()
        slow, close = first.agents.of("slow")[0], first.agents.of("slow")[0].close

        async def late(**options: Any) -> None:
            await go_on.wait()
            await close(**options)

        slow.close = late  # type: ignore[method-assign]
        ending = asyncio.create_task(first.manager.__aexit__(None, None, None))
        try:

            async def is_taken() -> bool:
                async with second.manager._holding("quick"):
                    return await second.manager._lease("quick") is None

            await until(is_taken)
            assert await first.is_owner("slow")
        finally:
            go_on.set()
            await ending


async def test_answers_are_kept_for_who_asked_whatever_a_servers_clock_says(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    await server.new("a")
    first, second = await server.put("a", "1"), await server.put("a", "2")
    for name in ("agent_core.events.event", "server.db.repositories.inbox"):
        monkeypatch.setattr(f"{name}.utc_now", lambda: datetime(2050, 1, 1, tzinfo=UTC), raising=False)
    for letter in (first, second):
        await server.manager._letters.answer(letter, {"id": 0})
    assert await server.manager._letters.answer_to(first) == {"id": 0}


async def test_nobody_waits_for_a_server_that_stands_still_in_the_midst_of_a_change(
    server: Server, postgresql_url: str
) -> None:
    await server.new("a")
    connection = await asyncpg.connect(postgresql_url)
    try:
        await connection.execute("INSERT INTO servers (id, url, expires_at) VALUES ('frozen', 'http://there', 1)")
        await connection.execute("INSERT INTO leases (conversation_id, owner, epoch) VALUES ('a', 'frozen', 1)")
        async with connection.transaction():
            await connection.execute("SELECT 1 FROM servers WHERE id = 'frozen' FOR SHARE")
            async with asyncio.timeout(60):
                assert (await server.manager._leases.take("a", server.manager.server_id)).owner == "frozen"
        await server.take("a")
    finally:
        await connection.close()


async def test_what_is_about_to_be_taken_up_is_not_given_back(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else two servers run it: the one that goes on taking it up, and the one that takes the lease meanwhile."""
    await server.database.conversations.create(ConversationRecord(id="a", agent_state="running"))
    go_on, holds_back = asyncio.Event(), server.manager._local.guard.holds_back

    async def slow(record: ConversationRecord) -> bool:
        await go_on.wait()
        return await holds_back(record)

    monkeypatch.setattr(server.manager._local.guard, "holds_back", slow)
    await until(lambda: "a" in server.manager._mine)
    given = list[str]()
    release = server.manager._leases.release

    async def noted(logs: Sequence[str], *names: str) -> None:
        given.extend(logs)
        await release(logs, *names)

    monkeypatch.setattr(server.manager._leases, "release", noted)
    for _ in range(3):
        await server.manager._look()
    assert given == []
    go_on.set()
    await until(lambda: server.agents.made)


async def test_nothing_is_loaded_without_its_lease(server: Server) -> None:
    await server.new("a")
    with pytest.raises(EndingError):
        await server.manager._local.maybe_start_agent_loop("a")
    await server.manager.maybe_start_agent_loop("a")


async def test_a_lease_is_taken_also_where_it_is_given_back_in_that_moment(
    server: Server, postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await server.new("a")
    other, change = await asyncpg.connect(postgresql_url), server.database.writer.change

    class Meddling:
        """A connection behind whose first statement about leases another one removes them, where it may."""

        def __init__(self, connection: Any) -> None:
            self._connection = connection

        async def execute(self, statement: Any, *values: Any) -> Any:
            result = await self._connection.execute(statement, *values)
            if "INTO leases" in str(statement):
                with suppress(asyncpg.LockNotAvailableError):
                    await other.execute("DELETE FROM leases")
            return result

        def __getattr__(self, name: str) -> Any:
            return getattr(self._connection, name)

    async def meddled(apply: Any, **options: Any) -> Any:
        return await change(lambda connection: apply(Meddling(connection)), **options)

    await other.execute("INSERT INTO leases (conversation_id, owner, epoch) VALUES ('a', '', 1)")
    await other.execute("SET lock_timeout = '200ms'")  # the server's: what it has given up does not come later
    monkeypatch.setattr(server.database.writer, "change", meddled)
    try:
        await server.take("a")
    finally:
        await other.close()


async def seen(server: Server, connection: str, shown: list[str]) -> asyncio.Task[None]:
    """A client of that server, to which live output of the conversation `a` is shown from now on."""
    joined = await server.manager.join("a", connection, Identity(""))
    stream = await joined.next_stream(None)
    assert stream is not None
    subscription = stream.subscribe(after=stream.last_id, transients=True)
    await subscription.__aenter__()

    async def follow() -> None:
        async for one in subscription:
            if isinstance(one, OutputDelta):
                shown.append(one.text)  # noqa: PERF401 - as it comes

    return asyncio.create_task(follow())


async def is_told(first: Server, shown: Sequence[list[str]], word: str) -> None:
    """Have the sandbox print a word until all clients were shown it; each of them was shown it as often then."""
    stream = first.agents.made[0].stream
    async with asyncio.timeout(20):
        printed = 0
        while not all(word in "".join(one) for one in shown):
            stream.publish(OutputDelta(1, word))  # before it is followed nobody is told
            printed += 1
            await asyncio.sleep(0.1)
    await asyncio.sleep(0.3)
    assert all(0 < "".join(one).count(word) <= printed for one in shown), (shown, printed)


async def test_live_output_comes_once_to_the_clients_of_each_server(servers: Servers) -> None:
    shown = [list[str](), list[str]()]
    async with servers.one() as first, servers.one("second") as second, servers.one("third") as third:
        await first.new("a")
        await first.manager.join("a", "of-first", Identity(""))
        tasks = [await seen(one, "client", log) for one, log in zip((second, third), shown, strict=True)]
        await is_told(first, shown, "one ")
        for task in tasks:
            task.cancel()


@pytest.mark.redis
async def test_live_output_goes_over_redis_and_over_postgresql_while_that_is_away(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANSWER_SECONDS", "SILENT_SECONDS"):  # a busy machine is no reason to take it for gone
        monkeypatch.setattr(redis_notices, name, 30.0)
    with RedisServer() as redis:
        url = {"redis_url": redis.url}
        async with servers.one(**url) as first, servers.one("second", **url) as second, servers.one("third") as third:
            await first.new("a")
            await first.manager.join("a", "of-first", Identity(""))
            shown = [list[str](), list[str]()]  # the third has no Redis
            tasks = [await seen(one, "client", log) for one, log in zip((second, third), shown, strict=True)]
            with_redis = [one.manager._redis for one in (first, second)]
            await until(lambda: all(isinstance(one, RedisNotices) and one.is_there for one in with_redis))
            await until(lambda: first.manager._deaf == {third.manager.server_id})
            over_postgresql = list[str]()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(first.manager._notices, "send", lambda told: over_postgresql.append(told.get("to", "")))
                await is_told(first, shown[:1], "over Redis ")
            assert second.manager.server_id not in over_postgresql
            await is_told(first, shown, "both ")
            redis.stop()
            await is_told(first, shown, "away ")
            redis.start()
            await until(lambda: all(isinstance(one, RedisNotices) and one.is_there for one in with_redis))
            await is_told(first, shown, "back ")
            for task in tasks:
                task.cancel()


@pytest.mark.pgbouncer
async def test_servers_share_a_database_by_way_of_pgbouncer(
    tmp_path: Path, postgresql: Cluster, postgresql_url: str
) -> None:
    name = make_url(postgresql_url).database or ""
    with pgbouncer(postgresql, name) as url:
        servers, shown = Servers(tmp_path, url), list[str]()
        async with servers.one() as first, servers.one("second") as second:
            await first.new("a")
            await first.manager.join("a", "of-first", Identity(""))
            task = await seen(second, "client", shown)
            await is_told(first, [shown], "by way of it ")
            assert (await second.manager.deliver("a", saying("one"), after=-1)).id >= 0
            assert await first.said("a") == ["one"]
            task.cancel()
