from __future__ import annotations

from typing import Any

import httpx

from tests.contract.rest.conftest import MakeServer, Server


async def say(server: Server, conversation_id: str, **body: Any) -> httpx.Response:
    given = {"version": "1.0", "email": "a@b.c", "polarity": "positive", "permissions": "private", **body}
    return await server.post(f"/api/conversations/{conversation_id}/submit-feedback", json=given)


async def said(server: Server, **query: Any) -> dict[str, Any]:
    found: dict[str, Any] = (await server.get("/api/feedback", params=query)).json()
    return found


async def test_feedback_is_kept_with_how_far_the_conversation_was(make_server: MakeServer) -> None:
    async with make_server() as server:
        conversation_id = await server.create()
        await server.until_running(conversation_id)
        receipt = (await say(server, conversation_id, trajectory=[], token="")).json()["body"]
        last = (await server.events(conversation_id))[-1]["id"]
    async with make_server() as server:
        (entry,) = (await said(server))["results"]
        assert entry.pop("created_at").endswith("Z")
        assert entry == {
            "feedback_id": receipt["feedback_id"],
            "conversation_id": conversation_id,
            "last_event_id": last,
            "polarity": "positive",
            "permissions": "private",
            "email": "a@b.c",
            "version": "1.0",
        }


async def test_feedback_comes_in_pages_that_new_one_does_not_shift(server: Server) -> None:
    one, other = await server.create(), await server.create()
    for n in range(5):
        await say(server, one, email=str(n))
    seen: list[str] = []
    page = await said(server, limit=2)
    while True:
        await say(server, other)
        seen += [entry["email"] for entry in page["results"]]
        if page["next_page_id"] is None:
            break
        page = await said(server, limit=2, page_id=page["next_page_id"])
    assert seen == ["4", "3", "2", "1", "0"]
    of_one = (await said(server, conversation_id=one))["results"]
    assert {entry["conversation_id"] for entry in of_one} == {one}
    assert (await server.get("/api/feedback?page_id=nonsense")).status_code == 400


async def test_feedback_goes_with_its_conversation(server: Server) -> None:
    conversation_id = await server.create()
    await say(server, conversation_id)
    await server.client.delete(f"/api/conversations/{conversation_id}")
    assert (await said(server))["results"] == []


async def test_an_experiment_stays_as_it_was_noted_first(server: Server) -> None:
    conversation_id = await server.create()
    path = f"/api/conversations/{conversation_id}/exp-config"
    for config in (None, {"a": "1"}, {"a": "2"}):
        assert (await server.post(path, json={"config": config})).json() is False
    record = await server.app.services.database.conversations.get(conversation_id)
    assert record is not None
    assert record.options["experiment"] == {"a": "1"}
