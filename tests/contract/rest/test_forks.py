"""Forks beside what else happens to their source: it works, it is itself a fork, it is deleted, its sandbox fails."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent_core.testing.fake_sandbox import BROKEN, FakeAnswer, FakeProvider, FakeRequest
from server.db.event_store import SqlEventStore
from tests.contract.rest.conftest import WAIT_SECONDS, MakeServer, Server, facts, kill

BARE = {"copy_files": False}


async def fork(server: Server, conversation_id: str, key: str | None = None, **body: Any) -> str:
    headers = {"Idempotency-Key": key} if key is not None else {}
    response = await server.post(f"/api/conversations/{conversation_id}/fork", json={**BARE, **body}, headers=headers)
    assert response.status_code == 200, response.text
    assert response.json()["forked_from"] == conversation_id
    return str(response.json()["conversation_id"])


async def begun(server: Server, text: str = "Build me a boat") -> str:
    """A conversation with a message in its log, and no work under way."""
    conversation_id = await server.create()
    await server.until_running(conversation_id)
    await server.post(f"/api/conversations/{conversation_id}/events", json=said(text))
    await server.post(f"/api/conversations/{conversation_id}/stop")
    return conversation_id


def said(text: str) -> dict[str, Any]:
    return {"action": "message", "args": {"content": text}}


def texts(events: list[dict[str, Any]]) -> list[str]:
    return [one["args"]["content"] for one in events if one.get("action") == "message" and one["source"] == "user"]


async def test_a_fork_of_a_conversation_at_work_has_what_was_in_the_log_and_does_not_disturb_it(
    make_server: MakeServer,
) -> None:
    working, go_on = asyncio.Event(), asyncio.Event()

    async def slow(call: FakeRequest) -> FakeAnswer:
        working.set()
        await go_on.wait()
        raise AssertionError("the conversation is stopped before that")

    provider = FakeProvider(handlers={"shell.run": slow, "workspace.facts": facts, "shell.kill": kill})
    async with make_server(provider) as server:
        source = await server.create(initial_user_msg="Build me a boat")
        async with asyncio.timeout(WAIT_SECONDS):
            await working.wait()
        before = await server.events(source)
        forked = await fork(server, source)
        assert (await server.events(forked))[: len(before)] == before
        assert (await server.info(forked))["status"] == "STOPPED"
        assert (await server.info(source))["status"] == "RUNNING"
        assert (await server.events(source))[: len(before)] == before


async def test_a_fork_of_a_fork_outlives_both_of_its_ancestors(server: Server) -> None:
    first = await begun(server)
    second = await fork(server, first)
    third = await fork(server, second)
    before = await server.events(third)
    assert texts(before) == ["Build me a boat"]
    for ancestor in (first, second):
        assert (await server.client.delete(f"/api/conversations/{ancestor}")).json() is True
        assert (await server.get(f"/api/conversations/{ancestor}")).json() is None
    assert await server.events(third) == before
    assert (await server.info(third))["title"].count("(fork)") == 2
    await server.post(f"/api/conversations/{third}/events", json=said("And a sail"))
    assert texts(await server.events(third)) == ["Build me a boat", "And a sail"]
    assert (await server.post(f"/api/conversations/{first}/fork", json=BARE)).status_code == 404


async def test_a_fork_of_what_is_deleted_while_it_is_copied_is_not_found(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, claim = await begun(server), SqlEventStore.claim

    async def delete_first(store: SqlEventStore, conversation_id: str) -> int:
        if conversation_id != source:
            assert (await server.client.delete(f"/api/conversations/{source}")).json() is True
        return await claim(store, conversation_id)

    monkeypatch.setattr(SqlEventStore, "claim", delete_first)
    async with asyncio.timeout(WAIT_SECONDS):
        response = await server.post(f"/api/conversations/{source}/fork", json=BARE)
    assert (response.status_code, (await server.get("/api/conversations")).json()["results"]) == (404, [])


async def test_an_event_that_only_the_source_has_is_none_of_the_forks(server: Server) -> None:
    source = await begun(server)
    forked = await fork(server, source, event_id=0)
    for number in range(10):
        await server.post(f"/api/conversations/{source}/events", json=said(f"And {number}"))
    last = len(await server.events(forked)) - 1
    beyond = len(await server.events(source)) - 1
    told = f"event_id: there is no event {beyond}: the log has the events 0 to "
    response = await server.post(f"/api/conversations/{forked}/fork", json={"event_id": beyond})
    assert (response.status_code, response.json()["message"]) == (400, f"{told}{last}")
    response = await server.post(f"/api/conversations/{forked}/rewind", json={"event_id": beyond})
    assert response.status_code == 400
    assert response.json()["message"].startswith(told)
    assert texts(await server.events(forked)) == []


async def test_a_repeated_fork_is_one_and_of_each_conversation_its_own(server: Server) -> None:
    first, second = await begun(server), await begun(server)
    forks = await asyncio.gather(*(fork(server, first, "key") for _ in range(4)))
    assert len(set(forks)) == 1
    assert await fork(server, second, "key") != forks[0]
    response = await server.post(
        f"/api/conversations/{first}/fork", json={**BARE, "event_id": 0}, headers={"Idempotency-Key": "key"}
    )
    assert (response.status_code, response.json()["code"]) == (422, "key_reused")
    assert len((await server.get("/api/conversations")).json()["results"]) == 4


async def test_pages_of_conversations_show_each_fork_once_while_others_are_made(server: Server) -> None:
    source = await begun(server)
    made = [source, *[await fork(server, source) for _ in range(4)]]
    shown: list[str] = []
    page: dict[str, Any] = {"next_page_id": None}
    while not shown or page["next_page_id"] is not None:
        query = {"limit": 2} | ({"page_id": page["next_page_id"]} if page["next_page_id"] else {})
        page = (await server.get("/api/conversations", params=query)).json()
        shown += [one["conversation_id"] for one in page["results"]]
        await fork(server, source)
    assert shown == made[::-1], "newest first, and none that came later"


async def test_where_the_sandbox_cannot_be_started_that_is_said_at_once(make_server: MakeServer) -> None:
    provider = FakeProvider(handlers={"workspace.facts": facts, "shell.kill": kill})
    async with make_server(provider) as server:
        source = await begun(server)
        (sandbox,) = provider.sandboxes.values()
        sandbox.behaviour = BROKEN
        async with asyncio.timeout(WAIT_SECONDS):
            response = await server.post(f"/api/conversations/{source}/fork")
        assert response.status_code == 500
        assert "could not be started; its log says why" in response.json()["message"]
        assert len((await server.get("/api/conversations")).json()["results"]) == 1


@pytest.mark.parametrize("wrong", [-1, 1.5, 1.0, "3", True, [1], 2**53 + 1])
async def test_what_is_no_id_of_an_event_is_refused_everywhere(server: Server, wrong: Any) -> None:
    source = await begun(server)
    before = await server.events(source)
    for what in ("fork", "rewind"):
        response = await server.post(f"/api/conversations/{source}/{what}", json={"event_id": wrong})
        assert response.status_code == 422
        assert "event_id" in response.json()["message"]
    wish = {"action": "rewind", "args": {"to": wrong}}
    response = await server.post(f"/api/conversations/{source}/events", json=wish)
    assert response.status_code in {400, 422}
    assert "to" in (response.json().get("error") or response.json()["message"])
    assert [one for one in await server.events(source) if one.get("action") == "rewind"] == []
    assert (await server.events(source))[: len(before)] == before
