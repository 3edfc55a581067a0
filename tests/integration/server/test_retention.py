"""Retention of a real server that was killed: what was at work or in line is old by now, and goes on all the same."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Turn, call, finish
from tests.integration.server.conftest import WAIT_SECONDS, MakeProcess, ServerProcess, create, following, stored_events


def waiting_for(gate: Path) -> Callable[[ModelRequest], Turn]:
    def turn(request: ModelRequest) -> Turn:
        text = str(request.messages)
        if "Wait for it" not in text or "tool_call_id" in text:
            return finish("Done.")
        return call("execute_bash", {"command": f"while [ ! -e {gate} ]; do sleep 0.05; done"})

    return turn


async def ids_of(server: ServerProcess) -> set[str]:
    async with server.client() as client:
        found = (await client.get("/api/conversations", params={"limit": 100})).json()["results"]
    return {info["conversation_id"] for info in found}


async def test_what_works_or_waits_in_line_outlives_a_kill_and_every_limit(
    make_process: MakeProcess, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    async with ModelServer(waiting_for(gate)) as model:
        environment = {"LLM_MODEL": "openai/m", "LLM_API_KEY": "key", "LLM_BASE_URL": model.url}
        environment |= {"DRYDOCK_GENERATE_TITLES": "false", "DRYDOCK_MAX_WORKING_CONVERSATIONS": "1"}
        server = await make_process("--sandbox", "unconfined", environment=environment)
        old = await create(server, initial_user_msg="Hello.")
        async with following(server, old) as follower:
            await follower.until(lambda: follower.count(action="finish") == 1)
        working = await create(server, initial_user_msg="Wait for it.")
        async with following(server, working) as follower:
            await follower.until(lambda: follower.count(action="run") == 1)
        waiting = [await create(server, initial_user_msg="Hello.") for _ in range(2)]
        async with server.client() as client, asyncio.timeout(WAIT_SECONDS):
            for one in waiting:
                while "line" not in (await client.get(f"/api/conversations/{one}")).text:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        await server.kill()
        with closing(sqlite3.connect(server.data_dir / "drydock.db")) as database, database:
            database.execute("UPDATE conversations SET created_at = 1e15, last_updated_at = 1e15 + rowid")
        limits = {"DAYS": "1", "USER_CONVERSATIONS": "1", "USER_MB": "1", "TOTAL_MB": "1", "INTERVAL_SECONDS": "1"}
        server.environment |= {f"DRYDOCK_RETENTION_{name}": value for name, value in limits.items()}
        await server.start()
        await server.until_printed("deleted 1 conversations")
        assert await ids_of(server) == {working, *waiting}
        gate.touch()
        for one in (working, *waiting):
            async with asyncio.timeout(WAIT_SECONDS):
                while (await stored_events(server, one))[-1].get("extras", {}).get("agent_state") != "finished":  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        assert old not in await ids_of(server)
