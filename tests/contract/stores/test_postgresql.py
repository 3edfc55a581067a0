"""PostgreSQL as it is when something is wrong with it: what is told meanwhile, and that all goes on by itself."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url, text
from sqlalchemy.ext.asyncio import AsyncConnection

from agent_core.errors import STORAGE_UNAVAILABLE, EventStoreError, StaleOwnerError
from agent_core.testing.store_contract import new_events, payloads
from server.db import event_rows
from server.db import postgresql as ways
from server.db import writer as writing
from server.db.database import HEAD, Database, examine, open_database
from server.db.engine import DatabaseSettings, create_engines
from server.db.errors import DatabaseError, DatabaseVersionError
from tests.listening import listening
from tests.postgresql import Cluster

pytestmark = pytest.mark.postgresql

ENDED = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'drydock%'"
WRITER = "SELECT pid FROM pg_stat_activity WHERE application_name = 'drydock writer'"


class Line:
    """What is between a server and its PostgreSQL, and can be cut."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._open: set[asyncio.StreamWriter] = set()
        self._before_sending = False
        self._before_hearing = False
        self.is_down = False
        self.port = 0

    def cut(self) -> None:
        """Cut what is connected."""
        for end in self._open:
            end.close()

    def cut_before_sending(self) -> None:
        """Cut when something is said the next time, of which nothing arrives."""
        self._before_sending = True

    def cut_before_hearing(self) -> None:
        """Cut when something is answered the next time: it was done, and nobody hears of it."""
        self._before_hearing = True

    async def carry(self, ours_in: asyncio.StreamReader, ours: asyncio.StreamWriter) -> None:
        if self.is_down:
            ours.close()
            return
        theirs_in, theirs = await asyncio.open_connection("127.0.0.1", self._cluster.port)
        self._open |= {ours, theirs}
        try:
            await asyncio.gather(
                self._copy(ours_in, theirs, lambda: self._before_sending),
                self._copy(theirs_in, ours, lambda: self._before_hearing),
            )
        finally:
            self._open -= {ours, theirs}
            ours.close()
            theirs.close()

    async def _copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, ends: Callable[[], bool]) -> None:
        try:
            while data := await source.read(65536):
                if ends():
                    self._before_sending = self._before_hearing = False
                    self.cut()
                    return
                target.write(data)
        except OSError:
            pass
        finally:
            target.close()


@pytest.fixture
async def database(tmp_path: Path, postgresql_url: str) -> AsyncIterator[Database]:
    async with open_database(tmp_path, DatabaseSettings(url=postgresql_url, touch_interval_seconds=0.05)) as database:
        yield database


@pytest.fixture
async def line(postgresql: Cluster) -> AsyncIterator[Line]:
    line = Line(postgresql)
    async with listening(line.carry) as line.port:
        yield line
        line.cut()


@pytest.fixture
async def database_behind(tmp_path: Path, postgresql_url: str, line: Line) -> AsyncIterator[Database]:
    url = postgresql_url.rpartition("@")[0] + f"@127.0.0.1:{line.port}/" + postgresql_url.rpartition("/")[2]
    async with open_database(tmp_path, DatabaseSettings(url=url)) as database:
        # What is said next on the line is to be what the test says, and not the look for left payloads.
        looking = [task for task in asyncio.all_tasks() if task.get_name() == "blob-collector"]
        if looking:
            await asyncio.wait(looking)
        await database.events.append("log", new_events("a"))
        yield database


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "RECONNECT_SECONDS", 0.1)
    monkeypatch.setattr(writing, "SETTLE_SECONDS", 0.5)
    monkeypatch.setattr("server.db.engine._RETRIES", ())
    monkeypatch.setattr("server.db.storage_health.StorageHealth.PROBE_SECONDS", 0.05)


async def working_again(database: Database) -> None:
    async with asyncio.timeout(30):
        while database.writer.health.problem:  # noqa: ASYNC110 - it is looked at from outside
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("how", ["fast", "immediate", "backends"])
async def test_a_server_that_is_started_anew_is_gone_on_with_and_nobody_is_refused(
    how: str, database: Database, postgresql: Cluster
) -> None:
    told: list[str] = []
    database.writer.health.watch(lambda now: told.append(now.problem))
    await database.events.append("log", new_events("a"))
    if how == "backends":
        await postgresql.run(ENDED)
    else:
        await asyncio.to_thread(postgresql.restart, "fast" if how == "fast" else "immediate")
    reads = [database.events.read("log") for _ in range(8)]
    appends = [database.events.append(log, new_events("b")) for log in ("log", "other", "third")]
    assert [len(page) for page in await asyncio.gather(*reads)] == [1] * 8
    assert await asyncio.gather(*appends, database.events.claim("other")) == [1, 0, 0, 1]
    assert told == []


async def test_appends_under_way_when_the_server_goes_down_are_stored_once(
    database: Database, postgresql: Cluster
) -> None:
    logs = [f"log-{number}" for number in range(5)]

    async def append(log: str) -> None:
        for number in range(40):
            await database.events.append(log, new_events(str(number)))

    for how in ("fast", "immediate"):
        appending = [asyncio.create_task(append(log)) for log in logs]
        await asyncio.sleep(0.02)
        await asyncio.to_thread(postgresql.restart, how)
        await asyncio.gather(*appending)
    for log in logs:
        assert await payloads(database.events, log) == [str(number).encode() for number in range(40)] * 2


async def test_what_was_stored_unheard_is_not_stored_again(database_behind: Database, line: Line) -> None:
    line.cut_before_hearing()
    together = [database_behind.events.append("log", new_events("b", "c")) for _ in range(2)]
    others = [database_behind.events.append(log, new_events("x")) for log in ("one", "two")]
    assert await asyncio.gather(*together, *others) == [1, 3, 0, 0]
    assert await payloads(database_behind.events, "log") == [b"a", b"b", b"c", b"b", b"c"]
    assert await database_behind.events.append("log", new_events("d")) == 5


async def test_what_did_not_arrive_is_sent_again(database_behind: Database, line: Line) -> None:
    line.cut_before_sending()
    assert await database_behind.events.append("log", new_events("b")) == 1
    assert await payloads(database_behind.events, "log") == [b"a", b"b"]


@pytest.mark.usefixtures("impatient")
async def test_a_change_that_may_be_stored_or_not_says_so(database_behind: Database, line: Line) -> None:
    line.cut_before_hearing()  # before its end: it is done anew
    assert await database_behind.events.claim("log") == 1
    with pytest.raises(DatabaseError, match="not known whether this was stored"):
        await database_behind.writer.change(_claiming(line))
    await working_again(database_behind)
    assert await database_behind.events.claim("log") == 3


def _claiming(line: Line) -> writing.DatabaseChange[None]:
    async def apply(connection: AsyncConnection) -> None:
        await event_rows.raise_epoch(connection, "log")
        line.cut_before_hearing()

    return apply


async def test_whoever_took_the_log_over_meanwhile_keeps_it(
    database_behind: Database, line: Line, postgresql: Cluster, postgresql_url: str
) -> None:
    """What the first owner had under way is stored or not; it hears that it is the owner no more."""
    epoch = await database_behind.events.claim("log")
    await database_behind.events.append("log", new_events("b"), epoch=epoch)
    line.is_down = True
    line.cut_before_hearing()
    appending = asyncio.create_task(database_behind.events.append("log", new_events("mine"), epoch=epoch))
    database = postgresql_url.rpartition("/")[2]
    async with asyncio.timeout(60):
        while not await postgresql.run("SELECT 1 FROM events WHERE id = 2", database=database):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await postgresql.run("UPDATE owners SET epoch = epoch + 1", database=database)
    line.is_down = False
    with pytest.raises(StaleOwnerError):
        await appending
    assert await payloads(database_behind.events, "log") == [b"a", b"b", b"mine"]


@pytest.mark.usefixtures("impatient")
async def test_while_the_server_is_down_all_is_refused_with_the_reason_and_then_goes_on(
    database: Database, postgresql: Cluster
) -> None:
    told: list[str] = []
    database.writer.health.watch(lambda now: told.append(now.code))
    await database.events.append("log", new_events("a"))
    await asyncio.to_thread(postgresql.stop)
    try:
        await asyncio.sleep(0.05)
        for call in (database.events.append("log", new_events("b")), database.events.claim("log")):
            with pytest.raises(EventStoreError, match="cannot be reached") as refused:
                await call
            assert refused.value.code == STORAGE_UNAVAILABLE
        with pytest.raises(DatabaseError, match="could not be read: the "):
            await database.events.read("log")
        assert told == [STORAGE_UNAVAILABLE]
    finally:
        await asyncio.to_thread(postgresql.start)
    await working_again(database)
    assert await database.events.append("log", new_events("c")) == 1
    assert told == [STORAGE_UNAVAILABLE, ""]


async def test_a_connection_over_which_nothing_comes_is_given_up_by_itself(postgresql_url: str) -> None:
    """Where the way to that machine is cut nobody else says so; `make chaos` cuts it."""
    engine = ways.create_engine(make_url(postgresql_url), name="drydock", answer_seconds=60)
    async with engine.connect() as connection:
        driver: Any = (await connection.get_raw_connection()).driver_connection
        wire = driver._transport.get_extra_info("socket")
        assert wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 10_000
        assert wire.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    await engine.dispose()


@pytest.mark.usefixtures("impatient")
async def test_a_server_that_stands_still_is_given_up_and_the_append_is_stored_once(
    tmp_path: Path, postgresql_url: str, postgresql: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ways, "WRITE_SECONDS", 0.3)
    monkeypatch.setattr(ways, "_ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(writing, "SLOW_SECONDS", 0.1)
    async with open_database(tmp_path, DatabaseSettings(url=postgresql_url)) as database:
        told: list[str] = []
        database.writer.health.watch(lambda now: told.append(now.problem))
        await database.events.append("log", new_events("a"))
        ((pid,),) = await postgresql.run(WRITER)
        os.kill(pid, signal.SIGSTOP)
        try:
            assert await database.events.append("log", new_events("b")) == 1
        finally:
            os.kill(pid, signal.SIGCONT)
        assert "the database has stored nothing for 0.1 s" in told
        await working_again(database)
        assert await database.events.append("log", new_events("c")) == 2
        assert await payloads(database.events, "log") == [b"a", b"b", b"c"]


async def test_a_transaction_that_the_server_ends_for_standing_still_is_done_anew(
    tmp_path: Path, postgresql_url: str
) -> None:
    url = f"{postgresql_url}?idle_in_transaction_session_timeout=500"
    async with open_database(tmp_path, DatabaseSettings(url=url)) as database:
        calls = 0

        async def apply(connection: AsyncConnection) -> int:
            nonlocal calls
            calls += 1
            epoch = await event_rows.raise_epoch(connection, "log")
            await asyncio.sleep(1 if calls == 1 else 0)
            return epoch + await event_rows.raise_epoch(connection, "log")

        assert await database.writer.change(apply) == 1 + 2
        assert calls >= 2
        assert await database.events.append("log", new_events("a"), epoch=2) == 0


async def test_an_upgrade_may_take_its_time_between_two_statements(postgresql_url: str) -> None:
    """What is to bring the schema up to date is loaded when others are kept waiting: on a busy machine for long."""
    engines = create_engines(f"{postgresql_url}?idle_in_transaction_session_timeout=100", DatabaseSettings())
    try:
        async with engines.write.begin() as connection:
            await ways.wait_for_upgrade(connection)
            await asyncio.sleep(0.5)
            assert (await connection.execute(text("SELECT 1"))).scalar_one() == 1
    finally:
        await engines.dispose()


@pytest.mark.usefixtures("impatient")
async def test_a_table_that_somebody_holds_locked_is_named_and_ends_no_wait_of_others(
    tmp_path: Path, postgresql_url: str, postgresql: Cluster
) -> None:
    async with open_database(tmp_path, DatabaseSettings(url=f"{postgresql_url}?lock_timeout=100")) as database:
        await database.events.append("log", new_events("a"))
        name = postgresql_url.rpartition("/")[2]
        locking = asyncio.create_task(
            postgresql.run("BEGIN", "LOCK TABLE events, owners", "SELECT pg_sleep(1)", "ROLLBACK", database=name)
        )
        while not await postgresql.run(  # noqa: ASYNC110 - PostgreSQL is looked at
            "SELECT 1 FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted"
        ):
            await asyncio.sleep(0.01)
        appends = [database.events.append("log", new_events("b")), database.events.claim("other")]
        for outcome in await asyncio.gather(*appends, return_exceptions=True):
            assert isinstance(outcome, EventStoreError)
            assert "another program holds the database locked" in str(outcome)
        await locking
        await working_again(database)
        assert await database.events.append("log", new_events("c")) == 1


@pytest.mark.usefixtures("impatient")
async def test_a_database_that_is_read_only_can_be_read_and_says_why_nothing_is_stored(
    database: Database, postgresql: Cluster
) -> None:
    await database.events.append("log", new_events("a"))
    reload = "SELECT pg_reload_conf()"
    await postgresql.run("ALTER SYSTEM SET default_transaction_read_only = on", reload)
    try:
        async with asyncio.timeout(60):
            while not database.writer.health.problem:
                outcomes = await asyncio.gather(database.events.claim("other"), return_exceptions=True)
        assert "the database is read-only (a standby, or" in str(outcomes[0])
        assert await payloads(database.events, "log") == [b"a"]
    finally:
        await postgresql.run(
            "SET default_transaction_read_only = off", "ALTER SYSTEM RESET default_transaction_read_only", reload
        )
    await working_again(database)
    assert await database.events.append("log", new_events("b")) == 1


async def test_a_standby_can_be_read_and_is_written_to_as_soon_as_it_is_the_primary(
    database: Database, postgresql: Cluster
) -> None:
    await database.events.append("log", new_events("a"))
    await asyncio.to_thread(postgresql.restart_as_standby)
    try:
        with pytest.raises(EventStoreError, match=r"the database is read-only \(a standby, or"):
            await database.events.append("log", new_events("b"))
        assert await payloads(database.events, "log") == [b"a"]
    finally:
        await postgresql.run("SELECT pg_promote()")
    await working_again(database)
    assert await database.events.append("log", new_events("c")) == 1


async def test_a_server_that_has_no_connection_left_is_named_and_what_is_connected_goes_on(
    database: Database, postgresql: Cluster, postgresql_url: str
) -> None:
    await database.events.append("log", new_events("a"))
    name = postgresql_url.rpartition("/")[2]
    await postgresql.run("CREATE ROLE admin SUPERUSER LOGIN")
    limit = (f"ALTER DATABASE {name} CONNECTION LIMIT 0", f"{ENDED} AND application_name = 'drydock readers'")
    await postgresql.run(*limit, "ALTER ROLE drydock NOSUPERUSER")
    try:
        with pytest.raises(DatabaseError, match="has no connection left"):
            await database.events.read("log")
        assert await database.events.append("log", new_events("b")) == 1
    finally:
        back = ("ALTER ROLE drydock SUPERUSER", f"ALTER DATABASE {name} CONNECTION LIMIT -1")
        await postgresql.run(*back, user="admin")
        await postgresql.run("DROP ROLE admin")
    assert await payloads(database.events, "log") == [b"a", b"b"]


async def test_two_processes_number_one_log_together_and_the_older_owner_stores_nothing_more(
    tmp_path: Path, postgresql_url: str
) -> None:
    settings = DatabaseSettings(url=postgresql_url)
    async with open_database(tmp_path / "a", settings) as one:
        (tmp_path / "b").mkdir(mode=0o700)
        (tmp_path / "b" / "secret.key").write_bytes((tmp_path / "a" / "secret.key").read_bytes())
        async with open_database(tmp_path / "b", settings) as two:
            first = await one.events.claim("log")
            mine, theirs = new_events("1"), new_events("2")
            appending = [asyncio.ensure_future(one.events.append("log", mine, epoch=first)) for _ in range(20)]
            second = await two.events.claim("log")
            others = [asyncio.ensure_future(two.events.append("log", theirs, epoch=second)) for _ in range(20)]
            outcomes = await asyncio.gather(*appending, *others, return_exceptions=True)
            assert all(isinstance(one, int | StaleOwnerError) for one in outcomes)
            log = await payloads(two.events, "log")
            assert log == [b"1"] * log.count(b"1") + [b"2"] * 20
            with pytest.raises(StaleOwnerError):
                await one.events.append("log", new_events("3"), epoch=first)


async def test_claims_of_many_at_once_are_all_different(tmp_path: Path, postgresql_url: str) -> None:
    engines = [create_engines(postgresql_url, DatabaseSettings()) for _ in range(4)]

    async def claim(number: int) -> int:
        async with engines[number].write.begin() as connection:
            return await event_rows.raise_epoch(connection, "log")

    assert sorted(await asyncio.gather(*map(claim, range(4)))) == [1, 2, 3, 4]
    for one in engines:
        await one.dispose()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda url: url.replace("drydock@", "locked:hunter2@"), "check user and password in database_url"),
        (lambda url: url.replace("drydock@", "nobody:hunter2@"), "check user and password in database_url"),
        (lambda url: url.rpartition("/")[0] + "/nowhere", "there is no such database on that server"),
        (lambda url: url.rpartition(":")[0] + ":9/x?password=hunter2", "cannot be reached"),
        (lambda url: "postgresql://ann:hunter2@nowhere.invalid/x", "has no address"),
        (lambda url: "postgresql://ann:hunter2@/x?host=/nowhere", "there is no socket of the database server"),
        (lambda url: f"{url}?sslmode=require&password=hunter2", "SSL"),
        (lambda url: f"{url}?target_session_attrs=standby", "what its target_session_attrs asks for"),
        (lambda url: f"{url}?no_such_option=hunter2", "does not know an option that database_url has"),
    ],
)
async def test_an_address_that_leads_nowhere_is_refused_with_the_reason_and_without_the_password(
    tmp_path: Path, postgresql_url: str, change: Callable[[str], str], words: str
) -> None:
    url = change(postgresql_url)
    with pytest.raises(DatabaseError, match=words) as caught:
        async with open_database(tmp_path, DatabaseSettings(url=url)):
            pytest.fail("it was opened")
    with pytest.raises(DatabaseError) as found:
        await examine(url)
    assert str(found.value) == str(caught.value)
    assert "hunter2" not in str(caught.value)


async def test_what_a_server_is_like_is_told_and_what_keeps_one_from_starting(
    postgresql: Cluster, new_postgresql_url: str, tmp_path: Path
) -> None:
    told = await examine(new_postgresql_url)
    assert told is not None
    assert "MiB, answers in " in told
    assert "with fsync and full_page_writes = off it may lose" in told
    assert told.endswith("its schema is made by the first start")
    async with open_database(tmp_path, DatabaseSettings(url=new_postgresql_url)):
        assert str(await examine(new_postgresql_url)).endswith(f"its schema is {HEAD}")
    with pytest.raises(DatabaseError, match="read-only"):
        await examine(f"{new_postgresql_url}&default_transaction_read_only=on")
    with pytest.raises(DatabaseError, match="GRANT CREATE ON SCHEMA public TO user"):
        await examine(f"{new_postgresql_url}&search_path=nowhere")
    name = new_postgresql_url.partition("@/")[2].partition("?")[0]
    await postgresql.run("UPDATE alembic_version SET version_num = '9999'", database=name)
    with pytest.raises(DatabaseVersionError, match="made by a newer version"):
        await examine(new_postgresql_url)
    assert await examine(f"sqlite+aiosqlite:///{tmp_path / 'x.db'}") is None


async def test_a_database_in_another_encoding_and_a_server_of_before_are_refused(
    tmp_path: Path, postgresql: Cluster, postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await postgresql.run("CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    with pytest.raises(DatabaseError, match="keeps text as LATIN1"):
        async with open_database(tmp_path, DatabaseSettings(url=postgresql.url("latin"))):
            pytest.fail("it was opened")
    await postgresql.drop("latin")
    monkeypatch.setattr(ways, "OLDEST_VERSION", 99)
    with pytest.raises(DatabaseError, match="99 or newer is needed"):
        async with open_database(tmp_path, DatabaseSettings(url=postgresql_url)):
            pytest.fail("it was opened")
