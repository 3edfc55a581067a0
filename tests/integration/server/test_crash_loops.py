"""A server that one of its conversations ends again and again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

import httpx
import pytest
import socketio.exceptions

from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Turn, call, finish
from server.session.crash_guard import FRUITLESS_LIVES, HELD_BACK
from tests.integration.server.conftest import (
    WAIT_SECONDS,
    Follower,
    MakeProcess,
    ServerProcess,
    create,
    following,
    info_of,
    is_in,
    stored_events,
)
from tests.waiting import until

LIGHTEST = ("--sandbox", "unconfined")


class Deadly:
    """Answers with one word, except to a conversation that speaks of poison: that ends the server."""

    def __init__(self) -> None:
        self.server: ServerProcess | None = None
        self.asked: list[str] = []
        self._poisoned = asyncio.Event()
        self.is_cured = False

    def __call__(self, request: ModelRequest) -> Turn:
        text = json.dumps(request.json["messages"])
        name = next(name for name in ("poison", "one", "two", "three") if f"Say {name}." in text)
        self.asked.append(name)
        if name == "poison" and not self.is_cured:
            assert self.server is not None
            os.kill(self.server.pid, signal.SIGKILL)
            self._poisoned.set()
        return finish(f"Done: {name}.")

    async def asked_again(self, before: int) -> None:
        while self.asked.count("poison") <= before:
            self._poisoned.clear()
            await self._poisoned.wait()


def model_of(model: ModelServer) -> dict[str, str]:
    return {
        "LLM_MODEL": "openai/x",
        "LLM_BASE_URL": model.url,
        "LLM_API_KEY": "k",
        "DRYDOCK_GENERATE_TITLES": "false",
        "DRYDOCK_HELD_BACK_SECONDS": "0",
    }


async def is_held(server: ServerProcess, conversation_id: str) -> bool:
    try:
        return bool((await info_of(server, conversation_id))["runtime_status"] == HELD_BACK)
    except httpx.TransportError:  # the server is ended at this moment
        return False


async def has_command_running(server: ServerProcess, conversation_id: str) -> bool:
    info = await info_of(server, conversation_id)
    await asyncio.sleep(0.05)  # who asks more often is refused
    stored = await stored_events(server, conversation_id)
    works = stored[-1].get("extras", {}).get("agent_state") in (None, "running")
    return works and info["runtime_status"] == "STATUS$READY" and any(one.get("action") == "run" for one in stored)


async def one_of(*waits: Coroutine[Any, Any, None]) -> None:
    tasks = [asyncio.create_task(wait) for wait in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


@pytest.mark.bubblewrap
async def test_a_command_that_runs_on_over_many_crashes_is_no_loop(make_process: MakeProcess) -> None:
    waits = "until [ -e go ]; do sleep 0.05; done; echo once >> ran"

    def turn(request: ModelRequest) -> Turn:
        is_done = any(message["role"] == "tool" for message in request.json["messages"])
        return finish("Done.") if is_done else call("terminal", {"command": waits})

    async with ModelServer(turn) as model:
        server = await make_process("--sandbox", "local", environment=model_of(model))
        conversation_id = await create(server, initial_user_msg="Wait.")
        for _ in range(FRUITLESS_LIVES + 1):
            await until(partial(has_command_running, server, conversation_id), seconds=WAIT_SECONDS)
            await server.kill()
            await server.start()
        (workspace,) = server.data_dir.glob("sandboxes/*/workspace")
        workspace.joinpath("go").touch()
        await until(partial(is_in, server, conversation_id, "finished"), seconds=WAIT_SECONDS)
        assert workspace.joinpath("ran").read_text() == "once\n"


async def test_one_that_ends_the_server_each_time_is_held_back_and_the_others_finish(
    make_process: MakeProcess,
) -> None:
    deadly = Deadly()
    async with ModelServer(deadly) as model:
        server = deadly.server = await make_process(*LIGHTEST, environment=model_of(model))
        poison = await create(server)
        message = {"action": "message", "args": {"content": "Say poison."}}
        async with server.client() as client:
            with suppress(httpx.TransportError):  # it may be ended before it has answered
                await client.post(f"/api/conversations/{poison}/events", json=message)
        await deadly.asked_again(0)
        # A browser has it open all the time: that takes it up no more than the server itself does.
        follower = Follower(server, poison)
        while (crashes := deadly.asked.count("poison")) < 10:
            await server.kill()
            with suppress(httpx.TransportError):
                await server.start()
            with suppress(socketio.exceptions.ConnectionError):
                await follower.connect()
            await one_of(deadly.asked_again(crashes), until(partial(is_held, server, poison)))
            await follower.disconnect()
            if deadly.asked.count("poison") == crashes:
                break
        assert crashes == FRUITLESS_LIVES
        others = {name: await create(server, initial_user_msg=f"Say {name}.") for name in ("one", "two")}
        for conversation_id in others.values():
            await until(partial(is_in, server, conversation_id, "finished"), seconds=WAIT_SECONDS)

        # Its user is told, in the conversation, its state and the list; a look at it does no harm.
        async with following(server, poison) as look:
            await look.until(lambda: any(frame.get("id") == HELD_BACK for frame in look.frames))
        stored = await stored_events(server, poison)
        changed = [event["extras"] for event in stored if event.get("observation") == "agent_state_changed"]
        (told,) = [extras for extras in changed if extras["reason"] == HELD_BACK]
        assert "held back" in told["detail"]
        info = await info_of(server, poison)
        assert (info["status"], info["runtime_status"]) == ("STARTING", HELD_BACK)
        assert "held back" in str(info["runtime_warning"])
        async with server.client() as client:
            assert 'drydock_troubles_total{code="CrashLoop"} 1.0' in (await client.get("/metrics")).text
        lines = [line for line in server.printed().splitlines() if "CrashLoop" in line]
        assert len(lines) == 1
        assert poison in lines[0]
        assert deadly.asked.count("poison") == 3

        # What its user says takes it up at once.
        deadly.is_cured = True
        async with server.client() as client:
            await client.post(f"/api/conversations/{poison}/start", json={})
        await until(partial(is_in, server, poison, "finished"), seconds=WAIT_SECONDS)
        assert (await info_of(server, poison))["runtime_status"] != HELD_BACK
