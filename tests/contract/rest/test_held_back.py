"""A conversation that is held back from crash loops: what its user does takes effect at once."""

from __future__ import annotations

from dataclasses import asdict

from agent_core.events.llm_events import MessageEvent
from agent_core.events.messages import Message
from agent_core.events.stream import EventStream
from server.session.crash_guard import FRUITLESS_LIVES, HELD_BACK, LIFE, Life
from tests.contract.rest.conftest import MakeServer
from tests.contract.rest.test_waiting import Model, serving, until_state


async def test_a_pause_takes_effect_at_once_and_a_run_after_it_goes_on(make_server: MakeServer) -> None:
    model = Model()
    async with model.server:
        async with serving(make_server, model, resume_on_start=False) as server:
            held = await server.create()
            await until_state(server, held, "awaiting_user_input")
            await server.post(f"/api/conversations/{held}/stop")
            database = server.app.services.database
            stream = await EventStream.open(held, database.events)
            await stream.add_event(MessageEvent(source="user", llm_message=Message.user("Do 'task-0'")))
            stream.close()
            loop = {LIFE: asdict(Life(fruitless=FRUITLESS_LIVES))}
            await database.conversations.update(held, agent_state="running", options=loop)
        async with serving(make_server, model, held_back_seconds=0) as server:

            async def is_held() -> bool:
                return bool((await server.info(held))["runtime_status"] == HELD_BACK)

            async def send(wished: str) -> None:
                event = {"action": "change_agent_state", "args": {"agent_state": wished}}
                assert (await server.post(f"/api/conversations/{held}/events", json=event)).status_code == 200

            await server.until(is_held)
            await send("paused")
            await until_state(server, held, "paused")

            assert (await server.info(held))["status"] == "STOPPED"  # nothing of it was begun for that
            assert model.asked == []
            await send("running")
            await until_state(server, held, "finished")
            assert model.order() == ["task-0"]
