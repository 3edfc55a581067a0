"""What pages ask for while their conversation is stopped or deleted is no fault of the server's."""

from __future__ import annotations

import asyncio

import pytest

from agent_core.testing.fake_sandbox import FakeAnswer, FakeProvider, FakeRequest
from server.conversation_manager.standalone import StandaloneConversationManager
from server.errors import ConversationNotFoundError
from tests.contract.rest.conftest import WAIT_SECONDS, MakeServer, Server, facts, kill, shell


@pytest.mark.parametrize("ending", ["stop", "delete"])
async def test_a_poll_that_its_conversations_end_cuts_short_finds_that_it_does_not_run(
    make_server: MakeServer, ending: str
) -> None:
    asked = {op: asyncio.Event() for op in ("git.status", "ports.list", "folder.list", "transfer.write")}

    async def hang(call: FakeRequest) -> FakeAnswer:
        asked[call.op].set()
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    calm = {"shell.run": shell, "workspace.facts": facts, "shell.kill": kill}
    provider = FakeProvider(handlers={**calm, **dict.fromkeys(asked, hang)})
    async with make_server(provider) as server:
        conversation_id = await server.create()
        await server.until_running(conversation_id)
        place = f"/api/conversations/{conversation_id}"
        polls = [
            asyncio.create_task(server.get(f"{place}/{what}")) for what in ("git/changes", "web-hosts", "list-files")
        ]
        upload = server.post(f"{place}/upload-files", files=[("files", ("a.txt", b"x"))])
        polls.append(asyncio.create_task(upload))
        async with asyncio.timeout(WAIT_SECONDS):
            await asyncio.gather(*(one.wait() for one in asked.values()))
            if ending == "stop":
                assert (await server.post(f"{place}/stop")).status_code == 200
            else:
                assert (await server.client.delete(place)).status_code == 200
            changes, hosts, *files = await asyncio.gather(*polls)
        assert (changes.status_code, "not running" in changes.json()["error"]) == (404, True)
        assert (hosts.status_code, hosts.json()) == (200, {"hosts": {}})
        for reply in files:
            assert (reply.status_code, reply.json()) == (404, {"error": "Runtime not yet initialized"})


async def test_a_start_while_its_conversation_is_deleted_finds_none(server: Server) -> None:
    conversation_id = await server.create()
    await server.until_running(conversation_id)
    place = f"/api/conversations/{conversation_id}"
    deleting = asyncio.create_task(server.client.delete(place))
    statuses = set()
    async with asyncio.timeout(WAIT_SECONDS):
        while not deleting.done():
            statuses.add((await server.post(f"{place}/start", json={})).status_code)
        assert (await deleting).json() is True
    assert statuses <= {200, 404}
    assert (await server.post(f"{place}/start", json={})).json()["msg_id"] == "CONVERSATION$NOT_FOUND"


@pytest.mark.parametrize("what", ["fork", "rewind"])
async def test_a_branch_of_a_conversation_that_is_deleted_meanwhile_finds_none(
    server: Server, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    async def gone(*_: object, **__: object) -> None:
        raise ConversationNotFoundError(conversation_id)

    monkeypatch.setattr("server.routes.conversations.conversations.fork_conversation", gone)
    monkeypatch.setattr(StandaloneConversationManager, "rewind", gone)
    conversation_id = await server.create()
    reply = await server.post(f"/api/conversations/{conversation_id}/{what}", json={"event_id": None})
    assert (reply.status_code, reply.json()) == (404, {"detail": f"Conversation {conversation_id} not found"})
