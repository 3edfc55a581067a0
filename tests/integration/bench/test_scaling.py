"""What docs/scaling.md reckons with, counted again at the sizes that run here: rows, bytes, connections and messages.

None of it is timed: it is the same on every machine, and a change of it is a change of the product.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import orjson
import pytest

from agent_core.events.control import AgentState, AgentStateChanged
from agent_core.events.llm_events import ActionEvent
from agent_core.events.serialization import from_payload
from agent_core.events.store import NewEvent
from agent_core.testing.fake_sandbox import FakeAnswer, FakeProvider, FakeRequest, command_result
from agent_core.testing.model_server import ModelServer
from bench.append import PAYLOAD
from bench.model_process import echo_steps
from bench.scaling import COSTS, Load, need, needs_table, simulation_table
from server.auth.identity import Identity
from server.db.database import Database, open_database
from server.db.engine import DatabaseSettings
from server.db.notices import CHANNEL
from server.db.repositories.conversations import ConversationRecord
from tests.contract.rest.conftest import FACTS, Server, kill, serving

FEW, MORE = 2, 12
OUTPUT = 2000
CLUSTERED = "server.conversation_manager.clustered.ClusteredConversationManager"
LIMIT_SECONDS = 60.0
_CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
ROOT = Path(__file__).parents[3]


def sandboxes(output: int) -> FakeProvider:
    """Sandboxes in which every command prints so much."""

    async def shell(request: FakeRequest) -> FakeAnswer:
        return command_result("x" * output)

    async def facts(request: FakeRequest) -> FakeAnswer:
        return FACTS

    return FakeProvider(handlers={"shell.run": shell, "workspace.facts": facts, "shell.kill": kill})


@asynccontextmanager
async def working(folder: Path, steps: int, output: int = 0, **settings: Any) -> AsyncIterator[Server]:
    async with ModelServer(echo_steps(steps)) as model:
        keys = {"llm_model": "openai/x", "llm_base_url": model.url, "llm_api_key": "k", "generate_titles": False}
        async with serving(folder, sandboxes(output), **keys, **settings) as server:
            yield server


async def finished(server: Server, conversation_id: str) -> list[bytes]:
    """The payloads from the first action to the end of the agent's work, when it is done."""
    store = server.app.services.database.events
    async with asyncio.timeout(LIMIT_SECONDS):
        while True:
            log = await store.read(conversation_id, limit=1000)
            events = [from_payload(one.payload, one.id, conversation_id) for one in log]
            ends = [isinstance(one, AgentStateChanged) and one.agent_state is AgentState.FINISHED for one in events]
            if any(ends):
                first = next(n for n, one in enumerate(events) if isinstance(one, ActionEvent))
                return [one.payload for one in log[first : ends.index(True)]]
            await asyncio.sleep(0.05)


async def appends(server: Server) -> int:
    shown = (await server.get("/metrics")).text
    line = next(line for line in shown.splitlines() if line.startswith("drydock_append_duration_seconds_count"))
    return int(float(line.split()[-1]))


async def counted(folder: Path, steps: int, output: int = 0) -> tuple[int, int, int]:
    """What one conversation with so many steps has stored: events of its steps, all appends, bytes of these events."""
    async with working(folder, steps, output) as server:
        log = await finished(server, await server.create(initial_user_msg="go"))
        return len(log), await appends(server), sum(map(len, log))


async def test_a_step_stores_what_the_model_of_scaling_says(tmp_path: Path) -> None:
    few, more = await counted(tmp_path / "few", FEW), await counted(tmp_path / "more", MORE)
    long = await counted(tmp_path / "long", MORE, OUTPUT)
    events, stored, size = ((after - before) / (MORE - FEW) for before, after in zip(few, more, strict=True))
    assert events == COSTS.events_per_step
    assert stored == pytest.approx(COSTS.appends_per_step, abs=0.2)  # what else is stored comes together, or not
    assert size == pytest.approx(COSTS.payload_bytes_per_step, rel=0.1)
    assert (long[2] - more[2]) / (MORE * OUTPUT) == pytest.approx(1, rel=0.02)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def address(request: pytest.FixtureRequest) -> str | None:
    """Of a new PostgreSQL database; None: of SQLite."""
    return str(request.getfixturevalue("new_postgresql_url")) if request.param == "postgresql" else None


@pytest.fixture
async def database(address: str | None, tmp_path: Path) -> AsyncIterator[Database]:
    async with open_database(tmp_path, DatabaseSettings(url=address)) as database:
        yield database


async def on_disk(database: Database) -> int:
    """Bytes of everything that is stored, with indexes."""
    if database.engines.kind == "sqlite":
        pages, size = (await database.engines.fetch("PRAGMA page_count"))[0], 4096
        return int(pages[0]) * size
    tables = (
        "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relname IN ('events', 'conversations', 'owners')"
    )
    return int((await database.engines.fetch(tables))[0][0])


async def test_rows_take_on_the_disk_what_it_says(database: Database) -> None:
    logs, each = 400, 20
    empty = await on_disk(database)
    for number in range(logs):
        name = f"{number:032x}"
        await database.conversations.create(
            ConversationRecord(
                id=name, title="Mend the login of the mobile page", agent_state="finished", trigger="gui"
            )
        )
        epoch = await database.events.claim(name)
        event = NewEvent("MessageEvent", "user", None, datetime.now(UTC), PAYLOAD)
        await database.events.append(name, [event] * each, epoch=epoch)
    grown = (await on_disk(database) - empty) / logs
    expected = COSTS.conversation_bytes + each * (COSTS.row_bytes + len(PAYLOAD))
    assert grown == pytest.approx(expected, rel=0.15)


@pytest.mark.postgresql
async def test_a_server_of_several_has_as_many_connections_and_sends_as_many_notices_as_it_says(
    new_postgresql_url: str, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"database_url": new_postgresql_url, "conversation_manager_class": CLUSTERED}
    heard = Counter[str]()

    def hear(connection: object, process: int, channel: str, payload: str) -> None:
        heard.update(orjson.loads(payload).keys() & {"stored", "notice"})

    listener = await asyncpg.connect(new_postgresql_url)
    try:
        sent: dict[int, int] = {}
        for steps in (FEW, MORE):
            folder = tmp_path / f"{steps}"
            async with working(folder / "a", steps, **settings, cluster_url="http://a") as here:
                key = (folder / "a" / "secret.key").read_bytes()
                (folder / "b").mkdir(mode=0o700)
                (folder / "b" / "secret.key").write_bytes(key)
                async with working(folder / "b", steps, **settings, cluster_url="http://b") as there:
                    name = await here.create()
                    services = here.app.services
                    await services.manager.maybe_start_agent_loop(name)
                    joined = await there.app.services.manager.join(name, "client", Identity(""))
                    stream = await joined.next_stream(None)
                    assert stream is not None
                    async with asyncio.timeout(LIMIT_SECONDS):
                        while not services.manager.live(name).num_connections:  # noqa: ASYNC110 - until it is followed
                            await asyncio.sleep(0.02)
                    await listener.add_listener(CHANNEL, hear)
                    await here.post(f"/api/conversations/{name}/message", json={"message": "go"})
                    await finished(here, name)
                    async with asyncio.timeout(LIMIT_SECONDS):
                        while stream.last_id < await services.database.events.last_id(name):  # noqa: ASYNC110 - seen by asking
                            await asyncio.sleep(0.05)
                    await listener.remove_listener(CHANNEL, hear)
                    sent[steps] = heard.total()
                    heard.clear()
                    await there.app.services.manager.leave("client")
                    reads = (services.database.events.last_id(name) for _ in range(20))
                    await asyncio.gather(*reads)
                    taken = await listener.fetchval(_CONNECTIONS)
                    assert taken <= 2 * COSTS.connections_per_process
        # Those of the last moment may be heard or not; a message more for each step would be seen.
        assert (sent[MORE] - sent[FEW]) / (MORE - FEW) == pytest.approx(COSTS.notices_per_step, abs=0.6)
    finally:
        await listener.close()


def test_the_page_has_the_tables_that_the_model_makes() -> None:
    page = (ROOT / "docs/scaling.md").read_text("utf-8")
    assert needs_table() in page
    assert simulation_table() in page


def test_what_is_needed_grows_with_what_is_asked_for() -> None:
    one = need(Load(agents=1000, conversations=1000, clients=1000))
    two = need(Load(agents=2000, conversations=2000, clients=2000))
    assert two.steps == pytest.approx(2 * one.steps)
    assert two.processes == pytest.approx(2 * one.processes, abs=1)
    assert two.database_size == pytest.approx(2 * one.database_size)
    assert need(Load(agents=1, conversations=1, clients=1)).processes == 1
