"""More conversations than may be at work: all wait for their turn, none is stopped, and each is told its place.

``WAITING=60`` has so many wait, with room for a third; ``SANDBOX=local`` gives them real sandboxes.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agent_core.events.event import utc_now
from agent_core.events.llm_events import MessageEvent
from agent_core.events.messages import Message
from agent_core.events.stream import Subscription
from agent_core.events.transient import StatusNotice
from agent_core.runtime.local.provider import LocalProvider
from agent_core.runtime.sandbox import SandboxProvider
from agent_core.testing.model_server import ModelRequest, ModelServer
from agent_core.testing.model_turns import Turn, call, finish
from server.db.repositories.conversations import ConversationRecord
from server.wire.frames import status_frame
from tests.contract.rest.conftest import MODEL_SECONDS, MakeServer, Server

LONG = 600.0
WAITING = int(os.environ.get("WAITING", "30"))


class Model:
    """Answers a message "hold" only after hours, and finishes at once what any other asks for; knows the order."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.server = ModelServer(self.answer)

    def answer(self, request: ModelRequest) -> Turn:
        said = [str(one["content"]) for one in request.messages if one["role"] == "user"]
        self.asked.append(said[-1])
        if "hold" in said[-1]:
            return finish("Held.", delay=LONG)
        return finish("Done.", delay=0.05)

    def order(self) -> list[str]:
        """The words of the tasks, in the order in which the model was first asked for them."""
        found = [word for text in self.asked for word in text.split("'") if word.startswith("task-")]
        return list(dict.fromkeys(found))


@asynccontextmanager
async def serving(
    make_server: MakeServer, model: Model, provider: SandboxProvider | None = None, **values: Any
) -> AsyncIterator[Server]:
    settings = {"llm_model": "openai/x", "llm_base_url": model.server.url, "llm_api_key": "key"}
    async with make_server(provider, generate_titles=False, **settings, **values) as server:
        yield server


async def state(server: Server, conversation: str) -> str:
    states = [one for one in await server.events(conversation) if one.get("observation") == "agent_state_changed"]
    return str(states[-1]["extras"]["agent_state"]) if states else ""


async def until_state(server: Server, conversation: str, wanted: str) -> None:
    async def reached() -> bool:
        return await state(server, conversation) == wanted

    await server.until(reached, seconds=MODEL_SECONDS)


async def until_position(server: Server, conversation: str, position: int | None) -> dict[str, Any]:
    found: dict[str, Any] = {}

    async def reached() -> bool:
        found.update(await server.info(conversation))
        return (found["waiting"] or {}).get("position") == position

    await server.until(reached, seconds=MODEL_SECONDS)
    return found


async def test_many_at_once_all_finish_in_their_order_and_nothing_is_stopped(
    make_server: MakeServer, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    model, room = Model(), WAITING // 3
    real = LocalProvider(str(tmp_path)) if os.environ.get("SANDBOX") == "local" else None
    caplog.set_level(logging.INFO, logger="server")
    limits = {"max_concurrent_conversations": room} | ({"max_sandboxes": room} if real is not None else {})
    async with model.server, serving(make_server, model, real, **limits) as server:
        made = [await server.create(initial_user_msg=f"Do 'task-{number:02}'") for number in range(WAITING)]
        for conversation in made:
            await until_state(server, conversation, "finished")
        for conversation in made:
            events = await server.events(conversation)
            assert [one for one in events if one.get("action") == "finish"]
            states = {one["extras"]["agent_state"] for one in events if one.get("observation") == "agent_state_changed"}
            assert not states & {"stopped", "error", "paused"}
    # A third works at the same time: how fast each comes to its model is not the queue's.
    places = enumerate(int(task.removeprefix("task-")) for task in model.order())
    assert all(abs(place - number) < WAITING // 3 for place, number in places)
    lines = [record for record in caplog.records if "waits for its turn" in record.getMessage()]
    assert len(lines) <= WAITING * 2 // 3


async def test_who_waits_is_third_in_line_and_says_so(make_server: MakeServer) -> None:
    model = Model()
    async with model.server, serving(make_server, model, max_concurrent_conversations=1) as server:
        holding = await server.create(initial_user_msg="hold")
        await until_state(server, holding, "running")
        others = [await server.create(initial_user_msg=f"Do 'task-{number}'") for number in range(3)]
        info = await until_position(server, others[2], 3)
        assert info["waiting"]["message"].startswith("Third in line: 1 of your conversations is at work")
        assert info["status"] == "STARTING"
        assert (await server.info(holding))["waiting"] is None
        gauges = (await server.get("/metrics")).text
        assert "drydock_waiting 3.0" in gauges
        assert "drydock_working 1.0" in gauges
        assert (await server.post(f"/api/conversations/{holding}/stop")).status_code == 200
        for conversation in others:
            await until_state(server, conversation, "finished")
        assert model.order() == ["task-0", "task-1", "task-2"]


async def test_a_follow_up_waits_like_the_rest_and_its_clients_are_told(
    make_server: MakeServer,
) -> None:
    model = Model()
    async with model.server, serving(make_server, model, max_concurrent_conversations=1) as server:
        rests = await server.create(initial_user_msg="Do 'task-first'")
        await until_state(server, rests, "finished")
        holding = await server.create(initial_user_msg="hold")
        await until_state(server, holding, "running")
        session = server.app.services.manager._sessions[rests]  # type: ignore[attr-defined]
        stream = session._agent.stream
        async with stream.subscribe(after=stream.last_id, transients=True) as seen:
            event = {"action": "message", "args": {"content": "Do 'task-second'"}}
            assert (await server.post(f"/api/conversations/{rests}/events", json=event)).status_code == 200
            reason = "First in line: 1 of your conversations is at work, as many as may be at a time."
            wanted = {"id": "AGENT_ERROR$TOO_MANY_CONVERSATIONS", "type": "error", "message": reason}
            assert (await next_status(seen)).items() > {**wanted, "source": "environment"}.items()
            async with stream.subscribe(after=stream.last_id, transients=True) as later:
                assert (await next_status(later)).items() > wanted.items()
            assert (await server.post(f"/api/conversations/{holding}/stop")).status_code == 200
            assert (await next_status(seen)).items() > {"id": "STATUS$READY", "type": "info"}.items()
        await until_state(server, rests, "finished")


async def next_status(seen: Subscription) -> dict[str, Any]:
    """What clients get of it: a protocol's error with a source and a time is one that they show."""
    async with asyncio.timeout(MODEL_SECONDS):
        async for one in seen:
            if isinstance(one, StatusNotice):
                return status_frame(one, utc_now())
    raise AssertionError("the stream ended without a notice")


async def test_users_take_turns_within_the_limit_of_all(make_server: MakeServer) -> None:
    model = Model()
    async with model.server, serving(make_server, model, max_working_conversations=1) as server:
        holding = await server.create(initial_user_msg="hold")
        await until_state(server, holding, "running")
        mine = [await server.create(initial_user_msg=f"Do 'task-{number}'") for number in range(2)]
        services = server.app.services
        await services.database.conversations.create(ConversationRecord(id="theirs", user_id="bob"))
        message = MessageEvent(source="user", llm_message=Message.user("Do 'task-of-bob'"))
        await services.manager.send("theirs", message)
        info = await until_position(server, mine[1], 3)
        assert info["waiting"]["message"] == "Third in line: 1 agent is at work, as many as this server has room for."
        await server.post(f"/api/conversations/{holding}/stop")
        await until_state(server, mine[1], "finished")
        assert sorted(model.order()[:2]) == ["task-0", "task-of-bob"], "neither has two before the other has one"


@pytest.mark.parametrize("begun", [False, True], ids=["new", "loaded"])
async def test_what_waits_can_be_paused_and_stopped_and_comes_back_with_a_message(
    make_server: MakeServer, begun: bool
) -> None:
    model = Model()
    async with model.server, serving(make_server, model, max_concurrent_conversations=1) as server:
        waits = await server.create(initial_user_msg="Do 'task-0'" if begun else None)
        if begun:
            await until_state(server, waits, "finished")
        else:
            await server.post(f"/api/conversations/{waits}/stop")
        holding = await server.create(initial_user_msg="hold")
        await until_state(server, holding, "running")

        async def send(**event: Any) -> None:
            assert (await server.post(f"/api/conversations/{waits}/events", json=event)).status_code == 200

        await send(action="message", args={"content": "Do 'task-1'"})
        await until_position(server, waits, 1)
        await send(action="change_agent_state", args={"agent_state": "paused"})
        await until_state(server, waits, "paused")
        await until_position(server, waits, None)
        await send(action="change_agent_state", args={"agent_state": "running"})
        await until_position(server, waits, 1)
        await send(action="change_agent_state", args={"agent_state": "paused"})
        await until_state(server, waits, "paused")
        await send(action="message", args={"content": "Do 'task-2'"})
        await until_position(server, waits, 1)
        assert (await server.post(f"/api/conversations/{waits}/stop")).status_code == 200
        await until_state(server, waits, "stopped")
        assert (await server.info(waits))["waiting"] is None
        await send(action="message", args={"content": "Do 'task-3'"})
        await until_position(server, waits, 1)
        assert (await server.post(f"/api/conversations/{holding}/stop")).status_code == 200
        await until_state(server, waits, "finished")
        assert model.order()[-1] == "task-3"
        assert sum("task" in text for text in model.asked) == 1 + begun, (
            "what was paused or stopped before its turn has asked nobody"
        )


@pytest.mark.parametrize("begun", [False, True], ids=["new", "loaded"])
async def test_what_was_paused_before_its_turn_runs_when_its_user_says_so(make_server: MakeServer, begun: bool) -> None:
    model = Model()
    async with (
        model.server,
        serving(make_server, model, max_concurrent_conversations=1, max_sandboxes=1 + begun) as server,
    ):
        waits = await server.create(initial_user_msg="Do 'task-0'" if begun else None)
        await until_state(server, waits, "finished" if begun else "awaiting_user_input")
        holding = await server.create(initial_user_msg="hold")
        await until_state(server, holding, "running")
        for state_wished in ("message", "paused", "running"):
            event = {"action": "change_agent_state", "args": {"agent_state": state_wished}}
            if state_wished == "message":
                event = {"action": "message", "args": {"content": "Do 'task-1'"}}
            assert (await server.post(f"/api/conversations/{waits}/events", json=event)).status_code == 200
            if state_wished == "paused":
                await until_state(server, waits, "paused")
            else:
                await until_position(server, waits, 1)
        assert (await server.post(f"/api/conversations/{holding}/stop")).status_code == 200
        await until_state(server, waits, "finished")
        assert model.order()[-1] == "task-1"


async def test_what_waits_goes_on_waiting_in_its_order_after_a_restart(make_server: MakeServer) -> None:
    model = Model()
    async with model.server:
        async with serving(make_server, model, max_concurrent_conversations=1) as server:
            holding = await server.create(initial_user_msg="hold")
            await until_state(server, holding, "running")
            waiting = [await server.create(initial_user_msg=f"Do 'task-{number}'") for number in range(4)]
            await until_position(server, waiting[3], 4)
        async with serving(make_server, model, max_concurrent_conversations=1) as server:
            await until_position(server, waiting[3], 4)
            assert (await server.info(holding))["waiting"] is None, "what worked works on"
            assert (await server.info(waiting[2]))["status"] == "STARTING"
            await server.post(f"/api/conversations/{waiting[2]}/stop")
            assert await state(server, waiting[2]) == "stopped"
            await server.client.delete(f"/api/conversations/{waiting[0]}")
            await server.post(f"/api/conversations/{holding}/stop")
            await until_state(server, waiting[3], "finished")
            assert await state(server, waiting[1]) == "finished"
            assert model.order() == ["task-1", "task-3"]


async def test_what_rests_makes_room_without_a_word_and_comes_back_with_its_next_message(
    make_server: MakeServer,
) -> None:
    model = Model()
    async with model.server, serving(make_server, model, max_sandboxes=2) as server:
        made = []
        for number in range(5):
            made.append(await server.create(initial_user_msg=f"Do 'task-{number}'"))
            await until_state(server, made[-1], "finished")
        assert "drydock_sandboxes 2.0" in (await server.get("/metrics")).text
        statuses = [(await server.info(conversation))["status"] for conversation in made]
        assert statuses[:3] == ["STOPPED"] * 3
        assert await state(server, made[0]) == "finished", "nobody has stopped it"
        event = {"action": "message", "args": {"content": "Do 'task-again'"}}
        await server.post(f"/api/conversations/{made[0]}/events", json=event)

        async def done() -> bool:
            return [one.get("action") for one in await server.events(made[0])].count("finish") == 2

        await server.until(done, seconds=MODEL_SECONDS)


async def test_a_confirmed_action_goes_on_and_what_awaits_its_user_holds_up_nobody(make_server: MakeServer) -> None:
    def turn(request: ModelRequest) -> Turn:
        text = str(request.messages)
        if "risky" in text and not any(one["role"] == "tool" for one in request.messages):
            return call("execute_bash", {"command": "true", "security_risk": "HIGH"})
        return finish("Done.")

    async with ModelServer(turn) as model:
        settings = {"llm_model": "openai/x", "llm_base_url": model.url, "llm_api_key": "key"}
        asks = {"generate_titles": False, "max_concurrent_conversations": 1}
        async with make_server(**settings, **asks) as server:
            await server.post("/api/settings", json={"confirmation_mode": True})
            asking = await server.create(initial_user_msg="risky")
            await until_state(server, asking, "awaiting_user_confirmation")
            other = await server.create(initial_user_msg="Do 'task-0'")
            await until_state(server, other, "finished")
            event = {"action": "change_agent_state", "args": {"agent_state": "user_confirmed"}}
            await server.post(f"/api/conversations/{asking}/events", json=event)
            await until_state(server, asking, "finished")
