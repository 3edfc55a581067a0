"""What is sent under an idempotency key is taken once, over either door (an addition to the protocol)."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from agent_core.errors import EventStoreError
from agent_core.events.llm_events import MessageEvent
from agent_core.events.messages import Message
from server.conversation_manager.conversation_manager import take_once
from tests.contract.rest.conftest import MakeServer, Server

MESSAGE = {"action": "message", "args": {"content": "Build me a boat"}}


@pytest.fixture
async def conversation_id(server: Server) -> str:
    return await server.create()


async def send(server: Server, conversation_id: str, key: str = "k-1", body: Any = MESSAGE) -> httpx.Response:
    headers = {"Idempotency-Key": key}
    return await server.post(f"/api/conversations/{conversation_id}/events", json=body, headers=headers)


async def messages(server: Server, conversation_id: str) -> list[dict[str, Any]]:
    events = await server.events(conversation_id)
    return [event for event in events if event.get("action") == "message" and event["source"] == "user"]


async def test_a_message_that_is_repeated_is_one_event_with_one_answer(server: Server, conversation_id: str) -> None:
    answers = [
        await send(server, conversation_id),
        *await asyncio.gather(*(send(server, conversation_id) for _ in range(4))),
    ]
    assert {(answer.status_code, answer.text) for answer in answers} == {(200, '{"success":true}')}
    (message,) = await messages(server, conversation_id)
    assert {answer.headers["X-Event-Id"] for answer in answers} == {str(message["id"])}
    assert message["idempotency_key"] == "k-1"


async def test_the_key_may_be_in_the_message_too_and_both_routes_share_it(server: Server, conversation_id: str) -> None:
    base = f"/api/conversations/{conversation_id}"
    text = MESSAGE["args"]["content"]  # type: ignore[index]
    answers = [
        await server.post(f"{base}/events", json={**MESSAGE, "idempotency_key": "k-1"}),
        await server.post(f"{base}/message", json={"message": text}, headers={"Idempotency-Key": "k-1"}),
        await send(server, conversation_id, body={**MESSAGE, "idempotency_key": "k-1"}),
    ]
    assert [answer.status_code for answer in answers] == [200] * 3
    assert len(await messages(server, conversation_id)) == 1
    differing = await send(server, conversation_id, "k-2", {**MESSAGE, "idempotency_key": "k-1"})
    assert (differing.status_code, differing.json()["error"]) == (
        400,
        "idempotency_key is another one than the header's; send one of them",
    )


async def test_another_key_is_another_message_and_so_is_the_same_elsewhere(
    server: Server, conversation_id: str
) -> None:
    other = await server.create()
    for where, key in ((conversation_id, "k-1"), (conversation_id, "k-2"), (other, "k-1")):
        assert (await send(server, where, key)).status_code == 200
    assert len(await messages(server, conversation_id)) == 2
    assert len(await messages(server, other)) == 1


async def test_the_key_counts_for_the_next_server_too(make_server: MakeServer) -> None:
    async with make_server() as server:
        made = await server.create()
        first = await send(server, made)
    async with make_server() as server:
        again = await send(server, made)
        assert (again.status_code, again.text) == (first.status_code, first.text)
        assert again.headers["X-Event-Id"] == first.headers["X-Event-Id"]
        assert len(await messages(server, made)) == 1


async def test_a_key_goes_with_its_conversation(make_server: MakeServer) -> None:
    async with make_server(allow_set_conversation_id=True) as server:
        for _ in range(2):
            made = await server.create(conversation_id="c1")
            assert (await send(server, made)).status_code == 200
            assert len(await messages(server, made)) == 1
            assert (await server.client.delete(f"/api/conversations/{made}")).status_code == 200


async def test_a_key_with_another_message_is_a_422_that_says_so(server: Server, conversation_id: str) -> None:
    await send(server, conversation_id)
    response = await send(server, conversation_id, body={"action": "message", "args": {"content": "A house"}})
    assert (response.status_code, response.json()["code"]) == (422, "key_reused")
    assert len(await messages(server, conversation_id)) == 1


async def test_a_refused_message_gives_its_key_free(server: Server, conversation_id: str) -> None:
    refused = await send(server, conversation_id, body={"action": "loop_recovery", "args": {}})
    assert (refused.status_code, refused.json()["success"]) == (400, False)
    assert refused.json()["error"].startswith("loop_recovery: the agent was not found in a loop")
    assert (await send(server, conversation_id)).status_code == 200


async def test_what_is_no_key_is_refused(server: Server, conversation_id: str) -> None:
    for key in ("", "x" * 256, "a b", "ä", 5, ["k"], True):
        body = {**MESSAGE, "idempotency_key": key}
        response = await server.post(f"/api/conversations/{conversation_id}/events", json=body)
        assert (response.status_code, response.json()["error"]) == (
            400,
            "idempotency_key is no key; send 1 to 255 visible ASCII characters, or leave it out",
        )
    assert await messages(server, conversation_id) == []


@pytest.mark.parametrize("action", [{"action": "rewind", "args": {"to": 0}}, {"action": "null"}])
async def test_whatever_is_sent_may_have_a_key(server: Server, conversation_id: str, action: Any) -> None:
    await server.until_running(conversation_id)
    first, second = [await send(server, conversation_id, body=action) for _ in range(2)]
    assert first.status_code == 200, first.text
    assert first.headers["X-Event-Id"] == second.headers["X-Event-Id"]
    events = await server.events(conversation_id)
    assert [event.get("action") for event in events if event.get("idempotency_key")] == [action["action"]]


@pytest.mark.parametrize("is_stored", [True, False])
async def test_an_attempt_that_a_crash_broke_off_is_found_in_the_log(
    server: Server, conversation_id: str, *, is_stored: bool
) -> None:
    """The event was appended, or not, and nobody could note the answer."""
    database, manager = server.app.services.database, server.app.services.manager
    event = MessageEvent(source="user", llm_message=Message.user("Build me a boat"), client_key="k-1")
    record = await database.conversations.get(conversation_id)
    assert record is not None

    async def broken_off(conversation_id: str, event: Any, *, after: int | None = None) -> Any:
        if is_stored:
            await manager.deliver(conversation_id, event, after=after)
        raise EventStoreError("The power failed.")

    with pytest.raises(EventStoreError):
        await take_once(
            event,
            conversation_id=conversation_id,
            user_id=record.user_id,
            keys=database.idempotency_keys,
            store=database.events,
            deliver=broken_off,
        )
    response = await send(server, conversation_id)
    assert response.status_code == 200, response.text
    (message,) = await messages(server, conversation_id)
    assert response.headers["X-Event-Id"] == str(message["id"])
