"""Sandboxes that are ready before their conversations, as clients see them: nothing differs but how long it takes."""

from __future__ import annotations

import asyncio
import re

import pytest

from agent_core.errors import SandboxError
from agent_core.runtime.sandbox import SandboxStatus
from agent_core.testing.fake_sandbox import FakeSandbox
from server.session import warm_sandboxes
from tests.contract.rest.conftest import MakeServer, Server
from tests.waiting import until


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_sandboxes, "PAUSE_SECONDS", 0.01)


async def number_ready(server: Server) -> int:
    found = re.search(r"^drydock_warm_sandboxes (\S+)$", (await server.get("/metrics")).text, re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


async def ready(server: Server) -> FakeSandbox:
    """The sandbox that is ready, once there is one."""
    warm = server.app.services.warm
    await until(lambda: warm.count)
    assert await number_ready(server) == 1
    (member,) = warm._kinds[0].ready
    return server.provider.sandboxes[server.app.services.database.instance_id, member.id]


async def test_a_conversation_has_the_sandbox_that_was_ready_and_a_server_may_keep_none(
    make_server: MakeServer,
) -> None:
    async with make_server(warm_sandboxes=1) as server:
        first = await server.create(initial_user_msg="go")
        await server.until_running(first)
        sandbox = await ready(server)
        assert len(server.provider.sandboxes) == 2
        boot = sandbox.runner.boot
        second = await server.create(initial_user_msg="go")
        assert second == sandbox.spec.conversation_id
        await server.until_running(second)
        assert (sandbox.starts, sandbox.runner.boot) == (2, boot)  # it was found at work
        record = await server.app.services.database.conversations.get(second)
        assert record is not None
        assert record.sandbox == sandbox.state
        await server.client.delete(f"/api/conversations/{second}")
        assert sandbox.status is SandboxStatus.ABSENT
        last = await ready(server)
    assert last.status is SandboxStatus.ABSENT
    async with make_server(warm_sandboxes=0) as server:
        third = await server.create()
        await server.until_running(third)
        await asyncio.sleep(0.1)
        assert {one for _, one in server.provider.sandboxes} == {first, third}


async def test_a_creation_that_is_repeated_takes_one_and_one_that_is_refused_takes_none(
    make_server: MakeServer,
) -> None:
    async def create(key: str, **body: object) -> str:
        answer = await server.post("/api/conversations", json=body, headers={"Idempotency-Key": key})
        return str(answer.json().get("conversation_id", answer.status_code))

    async with make_server(warm_sandboxes=1) as server:
        first = await create("1")
        sandbox = await ready(server)
        assert await create("1") == first
        assert await create("2", replay_json="[]") == "400"
        assert await create("3", sandbox={"memory_mb": -1}) == "422"
        assert await ready(server) is sandbox
        assert await create("2") == sandbox.spec.conversation_id
        assert await create("2") == sandbox.spec.conversation_id


async def test_a_conversation_that_cannot_begin_leaves_nothing_of_it(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room() -> None:
        raise SandboxError("There is no room.")

    async with make_server(warm_sandboxes=1) as server:
        await server.until_running(await server.create())
        sandbox = await ready(server)
        with monkeypatch.context() as patch:
            patch.setattr(server.app.services.sandboxes, "check_room", no_room)
            assert (await server.post("/api/conversations", json={})).status_code == 500
        assert sandbox.status is SandboxStatus.ABSENT
        assert server.app.services.manager.queue._others == {}


async def test_what_waits_for_its_turn_has_none_and_none_is_made_meanwhile(make_server: MakeServer) -> None:
    async with make_server(warm_sandboxes=1, max_sandboxes=2) as server:
        first = await server.create()
        await server.until_running(first)
        sandbox = await ready(server)
        second = await server.create()  # it takes the last place, and what is ready for it
        assert second == sandbox.spec.conversation_id
        await server.until_running(second)
        await asyncio.sleep(0.1)
        assert await number_ready(server) == 0
        await server.client.delete(f"/api/conversations/{first}")
        await ready(server)


async def test_a_chat_has_one_too(make_server: MakeServer) -> None:
    async with make_server(warm_sandboxes=1) as server:
        await server.create()
        sandbox = await ready(server)
        body = {"model": "drydock", "messages": [{"role": "user", "content": "go"}]}
        asking = asyncio.create_task(server.post("/v1/chat/completions", json=body))
        await until(lambda: sandbox.starts == 2)
        asking.cancel()
        await asyncio.wait({asking})
