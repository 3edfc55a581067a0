"""Webhooks over REST, in a real application with a real receiver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook as Verifier

from server.db.repositories.webhooks import MAX_PER_USER
from server.doors.webhooks.sender import new_secret
from tests.contract.rest.conftest import Server, serving
from tests.contract.webhooks.conftest import Receiver

URL = "https://example.com/hook"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with serving(tmp_path / "data") as running:
        yield running


async def test_a_conversations_whole_log_arrives_as_clients_read_it(server: Server, receiver: Receiver) -> None:
    made = (await server.post("/api/webhooks", json={"url": receiver.url})).json()
    conversation_id = await server.create(initial_user_msg="hello")
    await server.until_running(conversation_id)

    log: list[dict[str, Any]] = []

    async def is_told_all() -> bool:
        log[:] = [event for event in await server.events(conversation_id) if event.get("action") != "null"]
        return receiver.events(conversation_id) == [event["id"] for event in log]

    await server.until(is_told_all)
    for headers, body in receiver.requests:
        Verifier(made["secret"]).verify(body.decode(), headers)
    told = {event["id"]: event for one in receiver.acknowledged for event in one["data"]["events"]}
    for event in log:
        assert told[event["id"]] == event
    shown = (await server.get(f"/api/webhooks/{made['id']}")).json()
    assert shown["delivered_at"] is not None
    assert (shown["problem"], shown["failing_since"], shown["active"]) == ("", None, True)


@pytest.mark.parametrize("webhook_hosts", [["localhost"], []])
async def test_webhooks_go_to_the_webhook_hosts_and_to_no_other_that_is_not_public(
    tmp_path: Path, receiver: Receiver, webhook_hosts: list[str]
) -> None:
    for_others: dict[str, Any] = {"host": "0.0.0.0", "token": "t" * 24}  # noqa: S104 - where it listens for this machine alone, it may
    async with serving(tmp_path / "data", webhook_hosts=webhook_hosts, **for_others) as server:
        server.client.headers["x-session-api-key"] = "t" * 24
        url = receiver.url.replace("127.0.0.1", "localhost")
        made = (await server.post("/api/webhooks", json={"url": url})).json()
        conversation_id = await server.create()

        async def is_tried() -> bool:
            shown = (await server.get(f"/api/webhooks/{made['id']}")).json()
            return bool(receiver.events(conversation_id)) if webhook_hosts else "webhook_hosts" in shown["problem"]

        await server.until(is_tried)
    assert bool(receiver.requests) is bool(webhook_hosts)


async def test_one_is_made_shown_changed_and_deleted_and_its_secret_is_shown_once(server: Server) -> None:
    response = await server.post("/api/webhooks", json={"url": URL, "events": ["message", "message", "finish"]})
    assert response.status_code == 201
    made = response.json()
    secret = made.pop("secret")
    assert secret.startswith("whsec_")
    assert made["events"] == ["message", "finish"]
    listed = await server.get("/api/webhooks")
    assert listed.json() == {"results": [made], "next_page_id": None}
    assert secret not in listed.text
    path = f"/api/webhooks/{made['id']}"
    changed = await server.client.patch(path, json={"active": False, "events": []})
    assert changed.json() == {**made, "active": False, "events": []}
    own = new_secret().get_secret_value()
    assert (await server.client.patch(path, json={"secret": own})).status_code == 200
    stored = server.app.services.webhooks.get("", made["id"])
    assert stored is not None
    assert stored.secret.get_secret_value() == own
    assert (await server.client.delete(path)).status_code == 204
    assert (await server.get(path)).status_code == 404
    assert (await server.client.delete(path)).status_code == 404


async def test_what_is_asked_of_one_that_goes_at_this_moment_is_refused_in_words(server: Server) -> None:
    path = f"/api/webhooks/{(await server.post('/api/webhooks', json={'url': URL})).json()['id']}"
    changes = (server.client.patch(path, json={"active": active}) for active in (True, False, True))
    answers = await asyncio.gather(*(server.client.delete(path) for _ in range(3)), *changes)
    assert {one.status_code for one in answers} <= {204, 404}


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({}, "url", "required"),
    ({"url": 5}, "url", "string"),
    ({"url": "ftp://example.com"}, "url", "no address for HTTP"),
    ({"url": "example.com/hook"}, "url", "no address for HTTP"),
    ({"url": "https://user:pass@example.com/"}, "url", "password"),
    ({"url": "https://example.com:99999/"}, "url", "no address"),
    ({"url": "https://example.com:0/"}, "url", "port 0"),
    ({"url": "https://[::1/"}, "url", "no address"),
    ({"url": "https://exam ple.com/"}, "url", "characters"),
    ({"url": "https://exämple.com/"}, "url", "characters"),
    ({"url": f"{URL}#part"}, "url", "fragment"),
    ({"url": f"{URL}/{'x' * 3000}"}, "url", "2000"),
    ({"url": URL, "events": ["mesage"]}, "events", "'mesage' is no type of events; there are"),
    ({"url": URL, "events": "message"}, "events", "list"),
    ({"url": URL, "secret": "short"}, "secret", "whsec_"),
    ({"url": URL, "secret": "whsec_AAAA"}, "secret", "24 to 64 bytes"),
    ({"url": URL, "color": "red"}, "color", "there is no such field"),
]


async def test_what_cannot_be_is_refused_by_its_field(server: Server) -> None:
    for body, field, problem in REFUSED:
        response = await server.post("/api/webhooks", json=body)
        assert response.status_code == 422, body
        (found,) = response.json()["detail"]
        assert field in found["loc"], body
        assert problem.lower() in found["msg"].lower(), body
    assert (await server.get("/api/webhooks")).json()["results"] == []


async def test_only_ones_own_conversations_can_be_told_of(server: Server) -> None:
    response = await server.post("/api/webhooks", json={"url": URL, "conversation_id": "nobody"})
    assert response.status_code == 404
    made = (await server.post("/api/webhooks", json={"url": URL})).json()
    replay = {"conversation_id": "nobody", "after_event_id": -1}
    assert (await server.post(f"/api/webhooks/{made['id']}/replay", json=replay)).status_code == 404
    for after in (-2, "0", 1.5, 2**60, None):
        body = {**replay, "after_event_id": after}
        assert (await server.post(f"/api/webhooks/{made['id']}/replay", json=body)).status_code == 422


async def test_a_log_is_sent_again_on_request(server: Server, receiver: Receiver) -> None:
    made = (await server.post("/api/webhooks", json={"url": receiver.url})).json()
    conversation_id = await server.create()
    await receiver.until(lambda: receiver.events(conversation_id) != [])
    body = {"conversation_id": conversation_id, "after_event_id": -1}
    seen = len(receiver.acknowledged)
    assert (await server.post(f"/api/webhooks/{made['id']}/replay", json=body)).status_code == 202
    await receiver.until(lambda: any(one["data"]["first_event_id"] == 0 for one in receiver.acknowledged[seen:]))


async def test_the_list_can_be_asked_for_in_pages(server: Server) -> None:
    made = [(await server.post("/api/webhooks", json={"url": f"{URL}/{number}"})).json()["id"] for number in range(5)]
    found: list[str] = []
    query: dict[str, str] = {"limit": "2"}
    while True:
        page = (await server.get("/api/webhooks", params=query)).json()
        found += [one["id"] for one in page["results"]]
        assert len(page["results"]) <= 2
        if page["next_page_id"] is None:
            break
        query["page_id"] = page["next_page_id"]
        await server.client.delete(f"/api/webhooks/{found[-1]}")  # what goes shifts no page
    assert found == made
    assert (await server.get("/api/webhooks?page_id=x")).status_code == 400
    assert (await server.get("/api/webhooks?limit=0")).status_code == 422


async def test_there_may_be_so_many_and_no_more(server: Server) -> None:
    for _ in range(MAX_PER_USER):
        assert (await server.post("/api/webhooks", json={"url": URL})).status_code == 201
    response = await server.post("/api/webhooks", json={"url": URL})
    assert response.status_code == 409
    assert "delete one" in response.json()["detail"]
