"""A server that is killed while many wait for their turn: order, turns and actions are as if nothing had happened.

``KILLS=10`` has it killed so often, with 40 that wait.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Turn, call, finish
from tests.integration.server.conftest import WAIT_SECONDS, MakeProcess, ServerProcess, create, info_of, is_in, states
from tests.waiting import until

KILLS = int(os.environ.get("KILLS", "2"))
MANY, ROOM = 4 * KILLS, 2


class Workers:
    """A model that has each conversation write its name into `done` once, and knows in which order they began."""

    def __init__(self, done: Path) -> None:
        self.done = done
        self.begun: list[str] = []

    def __call__(self, request: ModelRequest) -> Turn:
        text = json.dumps(request.json["messages"])
        name = next(f"task-{number:02}" for number in range(MANY) if f"task-{number:02}" in text)
        if name not in self.begun:
            self.begun.append(name)
        if any(one["role"] == "tool" for one in request.messages):
            return finish("Done.", delay=0.1)
        return call("terminal", {"command": f"echo {name} >> {self.done}"}, delay=0.1)

    def lines(self) -> list[str]:
        return self.done.read_text().split() if self.done.exists() else []


async def positions(server: ServerProcess, made: list[str]) -> list[int]:
    infos = await asyncio.gather(*(info_of(server, conversation_id) for conversation_id in made))
    return [info["waiting"]["position"] for info in infos if info["waiting"] is not None]


@pytest.mark.timeout(180 + 60 * KILLS)
async def test_order_and_turns_are_kept_over_many_kills_and_nobody_is_to_blame(
    make_process: MakeProcess, tmp_path: Path
) -> None:
    workers = Workers(tmp_path / "done")
    async with ModelServer(workers) as model:
        environment = {
            "LLM_MODEL": "openai/x",
            "LLM_BASE_URL": model.url,
            "LLM_API_KEY": "k",
            "DRYDOCK_GENERATE_TITLES": "false",
            "DRYDOCK_MAX_WORKING_CONVERSATIONS": str(ROOM),
        }
        server = await make_process("--sandbox", "unconfined", environment=environment)
        made = [await create(server, initial_user_msg=f"Do task-{number:02}.") for number in range(MANY)]
        for kills in range(KILLS):
            await until(lambda: len(workers.lines()) >= 2 * kills, seconds=WAIT_SECONDS)  # noqa: B023 - asked at once
            await server.kill()
            await server.start()
            newest = await create(server, initial_user_msg="Do task-00.")  # behind all that waited
            found = await positions(server, made)
            assert found == sorted(found)
            made.append(newest)
        for conversation_id in made:
            await until(partial(is_in, server, conversation_id, "finished"), seconds=WAIT_SECONDS)
        assert Counter(workers.lines()) == {f"task-{number:02}": 1 for number in range(MANY)} | {"task-00": 1 + KILLS}
        places = [int(name.removeprefix("task-")) for name in workers.begun]
        assert all(later > earlier - ROOM for earlier, later in itertools.pairwise(places)), places
        for conversation_id in made:
            assert not {"stopped", "error", "paused"} & set(await states(server, conversation_id))
        async with server.client() as client:
            metrics = (await client.get("/metrics")).text
        assert "drydock_held_back 0.0" in metrics
        assert "CrashLoop" not in server.printed()
