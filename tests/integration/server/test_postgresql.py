"""A real server over a real PostgreSQL: killed, and while its database is away."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest

from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import call, finish
from server.cli.doctor import doctor
from server.cli.rotate_key import rotate_key
from server.db.database import DATABASE_FILE
from server.settings.settings import Settings
from tests.integration.server.conftest import MakeProcess, comparable, create, following, stored_events
from tests.postgresql import Cluster

PASSWORD = "s3cr+t/pass:word@%"  # with all that an address has a meaning for

pytestmark = pytest.mark.postgresql


@pytest.fixture
async def address(postgresql: Cluster) -> AsyncIterator[str]:
    """That of a new database, whose user has a password."""
    name = await postgresql.new_database()
    await postgresql.run(f"CREATE ROLE locked LOGIN PASSWORD '{PASSWORD}'", f"ALTER DATABASE {name} OWNER TO locked")
    yield postgresql.url(name, user="locked", password=PASSWORD, tcp=True)
    await postgresql.drop(name)
    await postgresql.run("DROP ROLE locked")


async def test_a_conversation_from_its_start_to_its_end_through_a_kill_and_an_outage(
    address: str, postgresql: Cluster, tmp_path: Path, make_process: MakeProcess
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    turns = [
        call("execute_bash", {"command": f"while [ ! -e {first} ]; do sleep 0.05; done; echo one"}),
        call("execute_bash", {"command": f"while [ ! -e {second} ]; do sleep 0.05; done; echo two"}),
        finish("Ready."),
    ]
    async with ModelServer(turns) as model:
        environment = {"LLM_MODEL": "openai/m", "LLM_API_KEY": "key", "LLM_BASE_URL": model.url}
        environment |= {"DRYDOCK_GENERATE_TITLES": "false", "DRYDOCK_DATABASE_URL": address}
        server = await make_process("--sandbox", "unconfined", environment=environment)
        conversation = await create(server, initial_user_msg="Go on.")
        async with following(server, conversation) as follower:
            await follower.until(lambda: follower.count(action="run") == 1)
            await server.kill()
        first.touch()
        await server.start()
        async with following(server, conversation) as follower, server.client() as client:
            await follower.until(lambda: follower.count(action="run") == 2)
            await asyncio.to_thread(postgresql.stop, "immediate")
            try:
                second.touch()
                path = f"/api/conversations/{conversation}"
                answers = [
                    await client.post("/api/conversations", json={"initial_user_msg": "More."}),
                    await client.post(f"{path}/events", json={"action": "message", "args": {"content": "x"}}),
                    await client.get("/ready"),
                    await client.get(path),
                ]
                assert [answer.status_code for answer in answers] == [503] * 4, [answer.text for answer in answers]
                assert answers[2].json()["status"] == "refusing"
                assert "the database server cannot be reached" in answers[2].json()["reason"]
                told = "STATUS$ERROR_STORAGE"
                await follower.until(lambda: follower.count(id=told) == 1)
            finally:
                await asyncio.to_thread(postgresql.start)
            await follower.until(lambda: follower.count(action="finish") == 1)
            assert (await client.get("/ready")).json()["status"] == "ok"
            assert "storage_unavailable" in server.printed()
            stored = await stored_events(server, conversation)
            assert [event["id"] for event in stored] == list(range(len(stored)))
            outputs = [event["content"] for event in stored if event.get("observation") == "run"]
            assert [text.strip() for text in outputs] == ["one", "two"]
            by_id = {event["id"]: comparable(event) for event in stored}
            assert all(by_id[number] == comparable(seen) for number, seen in follower.events.items())
        await server.stop()
        assert not (server.data_dir / DATABASE_FILE).exists()
        out = io.StringIO()
        rotating = Settings(data_dir=server.data_dir, database_url=address)
        await asyncio.to_thread(rotate_key, rotating, out)
        assert "A new key is in" in out.getvalue()
        await server.start()
        assert len(await stored_events(server, conversation)) >= len(stored)
    assert "Traceback" not in server.printed()
    for secret in (PASSWORD, quote(PASSWORD, safe="")):
        assert secret not in server.printed()


async def test_the_doctor_tells_of_the_database_and_of_a_wrong_password(address: str, tmp_path: Path) -> None:
    async def told(url: str) -> str:
        out = io.StringIO()
        settings = Settings(data_dir=tmp_path, database_url=url, sandbox="unconfined")
        await asyncio.to_thread(doctor, settings, out)
        return "\n".join(line for line in out.getvalue().splitlines() if "database" in line)

    assert "ok   database    PostgreSQL " in await told(address)
    wrong = await told(address.replace(quote(PASSWORD, safe=""), "hunter2"))
    assert "MISS database    the database postgresql+asyncpg://locked:***@127.0.0.1" in wrong
    assert "check user and password in database_url, and pg_hba.conf" in wrong
    assert "hunter2" not in wrong
