"""Conversations that are shared by links: what who has one may do, and what becomes of them when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from agent_core.events.event import utc_now
from server.auth import passwords
from server.auth.identity import Role
from server.auth.passwords import PasswordCost
from server.db.repositories.shares import MAX_SHARES, Access, Share
from tests.contract.openapi.documents import Operation, operations
from tests.contract.rest.conftest import MakeServer, Server, serving
from tests.contract.rest.test_accounts import token_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOKEN = "the-token-of-the-owner-of-this"
NOTHING = {"action": "message", "args": {"content": "hello"}}
READ = {
    *("get_conversation", "read_events", "read_trajectory", "select_file", "download", "zip_directory", "list_files"),
    *("folder_entries", "read_git_changes", "read_git_status", "read_git_diff", "read_git_log"),
}
WRITE = {"add_event", "add_message", "start_conversation", "stop_conversation", "upload_files"}
OF_CONVERSATIONS = [one for one in operations() if "{conversation_id}" in one.path]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    async with serving(tmp_path_factory.mktemp("shares"), token=TOKEN) as server:
        server.client.headers["x-session-api-key"] = TOKEN
        yield server


async def ask(server: Server, operation: Operation, conversation_id: str) -> tuple[int, str]:
    path = operation.path.replace("{conversation_id}", conversation_id)
    for one in operation.parameters("path"):
        path = path.replace(f"{{{one['name']}}}", "1")
    query = {one["name"]: "1" for one in operation.parameters("query") if one.get("required")}
    sent: dict[str, Any] = {"json": {}} if operation.takes_json else {}
    response = await server.client.request(operation.method, path, params=query, **sent)
    return response.status_code, response.text.replace(conversation_id, "?")


def guest(server: Server, token: str | None = None) -> Server:
    transport = httpx.ASGITransport(app=server.app, raise_app_exceptions=False)
    client = httpx.AsyncClient(transport=transport, base_url=str(server.client.base_url))
    if token is not None:
        client.headers["x-session-api-key"] = token
    return Server(server.app, client, server.provider)


async def shared(server: Server, conversation_id: str, **wish: Any) -> dict[str, Any]:
    response = await server.post(f"/api/conversations/{conversation_id}/shares", json=wish)
    assert response.status_code == 201, response.text
    answer: dict[str, Any] = response.json()
    return answer


@pytest.mark.parametrize("operation", OF_CONVERSATIONS, ids=[one.name for one in OF_CONVERSATIONS])
async def test_a_link_opens_what_is_listed_here_of_one_conversation_and_no_more(
    server: Server, operation: Operation
) -> None:
    conversation, other = await server.create(), await server.create()
    name = operation.spec["operationId"]
    for access, opens in (("read", READ), ("write", READ | WRITE)):
        visitor = guest(server, (await shared(server, conversation, access=access))["token"])
        status, text = await ask(visitor, operation, conversation)
        if name in opens:
            assert status not in {401, 403} or "shared with you" not in text, (status, text)
            assert (status, text) != await ask(visitor, operation, other)
        elif name in WRITE:
            assert (status, "shared with you for reading" in text) == (403, True)
        else:
            assert status in {403, 404} or text in {"null", "false"}, (status, text)
            assert (status, text) == await ask(visitor, operation, other)
    assert await server.app.services.database.conversations.get(conversation) is not None


async def test_a_guest_is_answered_nothing_else(server: Server) -> None:
    visitor = guest(server, (await shared(server, await server.create(), access="write"))["token"])
    for one in operations():
        if "{conversation_id}" in one.path or one.path in {"/api/options/config", "/api/shared", "/server_info"}:
            continue
        if one.path.startswith(("/api/", "/v1/", "/metrics", "/mcp/")):
            status, _ = await ask(visitor, one, "unknown")
            assert status == 403, one.name


async def test_a_browser_is_let_in_by_cookies_by_as_many_links_as_it_has(server: Server) -> None:
    conversations = [await server.create() for _ in range(2)]
    browser = guest(server)
    assert (await browser.get(f"/api/conversations/{conversations[0]}")).status_code == 401
    for conversation, access in zip(conversations, ("read", "write"), strict=True):
        link = await shared(server, conversation, access=access)
        assert link["path"] == f"/shared#{link['token']}"
        opened = await browser.client.post("/api/shared", headers={"x-session-api-key": link["token"]})
        assert (opened.status_code, opened.json()) == (200, {"conversation_id": conversation, "access": access})
        assert "HttpOnly" in opened.headers["set-cookie"]
    for conversation, access in zip(conversations, ("read", "write"), strict=True):
        assert (await browser.get(f"/api/conversations/{conversation}")).json()["access"] == access
        said = await browser.post(f"/api/conversations/{conversation}/events", json={"action": "nothing"})
        assert (said.status_code == 403) == (access == "read")
    assert (await server.get(f"/api/conversations/{conversations[0]}")).json()["access"] == "owner"
    browser.client.cookies.clear()
    assert (await browser.get(f"/api/conversations/{conversations[0]}")).status_code == 401


async def test_what_is_taken_back_or_over_opens_nothing(server: Server) -> None:
    conversation = await server.create()
    link = await shared(server, conversation)
    visitor, path = guest(server, link["token"]), f"/api/conversations/{conversation}"
    assert (await visitor.get(path)).json()["conversation_id"] == conversation
    assert await server.app.services.database.shares.remove("another", link["share_id"]) is False
    assert (await server.client.delete(f"{path}/shares/{link['share_id']}")).json() is True
    assert (await server.client.delete(f"{path}/shares/{link['share_id']}")).json() is False
    assert (await visitor.get(path)).status_code == 401
    shares = server.app.services.database.shares
    ended = Share(conversation_id=conversation, access=Access.READ, expires_at=utc_now() - timedelta(seconds=1))
    token = await shares.add(ended)
    assert token
    assert (await guest(server, token).get(path)).status_code == 401
    (listed,) = (await server.get(f"{path}/shares")).json()["results"]
    assert (listed["share_id"], listed["has_ended"], "token" in listed) == (ended.id, True, False)


async def test_shares_go_with_their_conversation_and_have_a_bound(server: Server) -> None:
    conversation = await server.create()
    shares = server.app.services.database.shares
    await asyncio.gather(
        *(shares.add(Share(conversation_id=conversation, access=Access.READ)) for _ in range(MAX_SHARES - 1))
    )
    link = await shared(server, conversation, expires_in=None)
    assert link["expires_at"] is None
    refused = await server.post(f"/api/conversations/{conversation}/shares", json={})
    assert (refused.status_code, "200 times already" in refused.text) == (409, True)
    assert (await server.client.delete(f"/api/conversations/{conversation}")).json() is True
    assert await shares.all(conversation) == []
    assert await shares.links([link["token"]]) == []
    assert await shares.add(Share(conversation_id=conversation, access=Access.READ)) is None


@pytest.mark.parametrize(
    ("wish", "problem"),
    [({"access": "owner"}, "access"), ({"expires_in": 1}, "expires_in"), ({"user": "x"}, "one user")],
)
async def test_a_wish_that_cannot_be_is_refused_by_its_field(
    server: Server, wish: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    response = await server.post(f"/api/conversations/{await server.create()}/shares", json=wish)
    assert (response.status_code, problem in response.text) == (422, True)


async def test_a_conversation_is_shared_with_a_user_by_name(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passwords, "COST", PasswordCost(memory_kib=64, iterations=1))
    async with make_server(users="accounts", token=TOKEN) as server:
        users = server.app.services.database.users
        await users.add("ann", Role.ADMINISTRATOR)
        await users.add("bob", Role.USER)
        await users.add("vera", Role.VIEWER)
        ann, bob, vera = [await token_of(server, name) for name in ("ann", "bob", "vera")]
        made = (await server.client.post("/api/conversations", json={}, headers=ann)).json()["conversation_id"]
        path, shares = f"/api/conversations/{made}", f"/api/conversations/{made}/shares"

        async def share(**wish: Any) -> httpx.Response:
            answer: httpx.Response = await server.client.post(shares, json=wish, headers=ann)
            return answer

        async def seen(headers: dict[str, str]) -> str | None:
            info = (await server.get(path, headers=headers)).json()
            listed = (await server.get("/api/shared", headers=headers)).json()["results"]
            assert [one["conversation_id"] for one in listed] == ([made] if info else [])
            return None if info is None else str(info["access"])

        assert await seen(bob) is None
        assert (await share(user="nobody")).status_code == 404
        assert "own" in (await share(user="ANN")).text
        assert (await share(user="Bob", access="write")).json()["path"] == f"/conversations/{made}"
        assert (await share(user="vera", access="write")).json()["token"] is None
        assert [await seen(one) for one in (bob, vera)] == ["write", "write"]
        said = [await server.client.post(f"{path}/events", json=NOTHING, headers=one) for one in (bob, vera)]
        assert [one.status_code for one in said] == [200, 403]  # a viewer is one everywhere
        assert (await share(user="bob")).status_code == 201  # in the place of the one before
        assert await seen(bob) == "read"
        listed = (await server.get(shares, headers=ann)).json()["results"]
        assert [(one["user"], one["access"]) for one in listed] == [("vera", "write"), ("bob", "read")]
        assert (await server.get(shares, headers=bob)).status_code == 404
        await server.client.delete(f"{shares}/{listed[1]['share_id']}", headers=ann)
        assert await seen(bob) is None
