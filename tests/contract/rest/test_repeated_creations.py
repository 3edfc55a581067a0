from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from server.db.repositories.idempotency_keys import Attempt
from server.routes.conversations.new_conversation import NewConversation, begin_conversation
from tests.contract.rest.conftest import MakeServer, Server

BODY = {"initial_user_msg": "Build me a boat"}


async def create(server: Server, key: str = "k-1", body: Any = BODY) -> httpx.Response:
    return await server.post("/api/conversations", json=body, headers={"Idempotency-Key": key})


async def conversations(server: Server) -> list[str]:
    listed = (await server.get("/api/conversations")).json()["results"]
    return [info["conversation_id"] for info in listed]


async def said(server: Server, conversation_id: str) -> list[str]:
    events = await server.events(conversation_id)
    return [e["args"]["content"] for e in events if e.get("action") == "message" and e["source"] == "user"]


async def test_a_creation_that_is_repeated_makes_one_conversation_with_one_message(server: Server) -> None:
    answers = [await create(server), *await asyncio.gather(*(create(server) for _ in range(4)))]
    assert {answer.status_code for answer in answers} == {200}
    assert all(answer.json() == answers[0].json() for answer in answers)
    made = answers[0].json()["conversation_id"]
    assert await conversations(server) == [made]
    assert await said(server, made) == [BODY["initial_user_msg"]]


async def test_another_key_makes_another_conversation(server: Server) -> None:
    await create(server, "k-1")
    await create(server, "k-2")
    assert len(await conversations(server)) == 2


async def test_the_key_counts_for_the_next_server_too(make_server: MakeServer) -> None:
    async with make_server() as server:
        first = (await create(server)).json()
    async with make_server() as server:
        assert (await create(server)).json() == first
        assert await conversations(server) == [first["conversation_id"]]


@pytest.mark.parametrize("other", [{}, {"initial_user_msg": "Build me a house"}])
async def test_a_key_with_another_body_is_a_422_that_says_so(server: Server, other: Any) -> None:
    await create(server)
    response = await create(server, body=other)
    assert response.status_code == 422
    assert response.json()["code"] == "key_reused"
    assert "Idempotency-Key: 'k-1' came with another request" in response.json()["detail"]
    assert len(await conversations(server)) == 1


async def test_a_refused_creation_gives_its_key_free(server: Server) -> None:
    assert (await create(server, body={"replay_json": "[]"})).status_code == 400
    assert (await create(server)).status_code == 200


@pytest.mark.parametrize("key", ["", "a" * 256, "two words", "tab\there"])
async def test_a_key_that_can_be_none_is_a_422_that_names_the_header(server: Server, key: str) -> None:
    response = await create(server, key)
    assert response.status_code == 422
    assert response.json()["detail"][0]["loc"] == ["header", "Idempotency-Key"]
    assert await conversations(server) == []


async def test_a_repetition_after_the_conversation_was_deleted_makes_no_other_one(server: Server) -> None:
    first = (await create(server)).json()
    await server.client.delete(f"/api/conversations/{first['conversation_id']}")
    assert (await create(server)).json() == first
    assert await conversations(server) == []


async def test_a_creation_that_broke_off_before_its_message_is_made_whole(server: Server) -> None:
    services = server.app.services
    identity = await services.authenticator.identify({})
    assert identity is not None
    await begin_conversation(services, identity, NewConversation(), Attempt("half", is_repeated=False))
    whole = NewConversation(initial_user_msg="Build me a boat")
    for _ in range(2):
        await begin_conversation(services, identity, whole, Attempt("half", is_repeated=True))
    assert await conversations(server) == ["half"]
    assert await said(server, "half") == ["Build me a boat"]


async def test_a_fork_that_is_repeated_is_one_fork(make_server: MakeServer) -> None:
    headers = {"Idempotency-Key": "f-1"}
    async with make_server() as server:
        made = await server.create(initial_user_msg="hello")
        await server.until_running(made)
        path = f"/api/conversations/{made}/fork"
        first = (await server.post(path, json={"event_id": 1, "copy_files": False}, headers=headers)).json()
        assert (await server.post(path, json={"event_id": 0, "copy_files": False}, headers=headers)).status_code == 422
    async with make_server() as server:
        assert (await server.post(path, json={"event_id": 1, "copy_files": False}, headers=headers)).json() == first
        assert await conversations(server) == [first["conversation_id"], made]
