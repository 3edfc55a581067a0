"""A server with accounts: who gets in and by what, what their role and their token's scopes let them do."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.routing import BaseRoute

from agent_core.testing.fake_sandbox import FakeProvider
from server.accounts import LINK_PATH
from server.app import create_app
from server.auth import passwords
from server.auth.doorkeeper import WRONG_FOR_NAME
from server.auth.identity import Permission, Role
from server.auth.passwords import PasswordCost
from server.db.errors import DatabaseError
from server.http.gate import ADMINISTRATION, OWN_ACCOUNT, STRANGERS
from server.session.sandboxes import SandboxSelection
from server.settings.settings import Settings
from tests.contract.rest.conftest import MakeServer, Server
from tests.contract.sockets.loopback import Client
from tests.serving import serving
from tests.waiting import until

PASSWORD = "four unusual words"
TOKEN = "a-token-of-quite-some-length"


@pytest.fixture(autouse=True)
def cheap_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "COST", PasswordCost(memory_kib=64, iterations=1))


@pytest.fixture
async def server(make_server: MakeServer) -> AsyncIterator[Server]:
    async with make_server(users="accounts", token=TOKEN) as running:
        yield running


async def add(server: Server, name: str, role: Role = Role.USER) -> str:
    """A user with `PASSWORD`; returns what a browser keeps of a sign-in."""
    database, accounts = server.app.services.database, server.app.accounts
    assert accounts is not None
    user = await database.users.add(name, role, password=await accounts.hash(PASSWORD, name))
    return (await accounts.begin(user, address="", browser="", is_safe=False)).split(";")[0]


async def token_of(server: Server, name: str, *scopes: Permission) -> dict[str, str]:
    user = await server.app.services.database.users.named(name)
    assert user is not None
    made = await server.app.services.database.credentials.make_token(user.id, "x", scopes or tuple(Permission))
    return {"X-Session-API-Key": made[0]}


async def test_the_first_administrator_comes_by_the_link_of_the_start_and_has_what_was_there(
    make_server: MakeServer,
) -> None:
    async with make_server() as before:
        conversation = await before.create()
    async with make_server(users="accounts") as server:
        assert server.app.accounts is not None
        path = await server.app.accounts.first_link()
        assert path is not None
        link = path.removeprefix(LINK_PATH)
        shown = await server.post("/api/auth/link", json={"link": link})
        assert {**shown.json(), "expires_at": ""} == {"name": None, "role": "administrator", "expires_at": ""}
        for name, password, field in (
            ("a b", PASSWORD, "name"),
            ("ann", "short", "password"),
            ("ann", "a" * 40, "password"),
        ):
            refused = await server.post("/api/auth/link/use", json={"link": link, "name": name, "password": password})
            assert refused.status_code == 422
            assert refused.json()["detail"][0]["loc"] == ["body", field]
        used = await server.post("/api/auth/link/use", json={"link": link, "name": "ann", "password": PASSWORD})
        assert used.status_code == 200
        cookie = used.headers["set-cookie"]
        assert re.search(r"; Path=/; HttpOnly; SameSite=Lax; Max-Age=2592000$", cookie)
        again = await server.post("/api/auth/link/use", json={"link": link, "name": "bea", "password": PASSWORD})
        assert again.status_code == 410
        assert (await server.get("/api/auth/me")).json()["role"] == "administrator"
        assert (await server.info(conversation))["conversation_id"] == conversation
        assert await server.app.accounts.first_link() is None
        bob = {"Cookie": await add(server, "bob")}
        server.client.cookies.clear()
        assert (await server.get(f"/api/conversations/{conversation}/events", headers=bob)).status_code == 404
        assert (await server.get("/api/conversations", headers=bob)).json()["results"] == []


async def test_whatever_is_wrong_at_a_sign_in_is_answered_alike(server: Server) -> None:
    await add(server, "ann")
    await add(server, "gone")
    await server.app.services.database.users.add("invited", Role.USER)
    await server.app.services.database.users.add("admin", Role.ADMINISTRATOR)
    await server.app.services.database.users.change("gone", disabled=True)
    tries = (("ann", "wrong password"), ("nobody", PASSWORD), ("gone", PASSWORD), ("invited", PASSWORD), ("", ""))
    answers = [await server.post("/api/auth/sign-in", json={"name": n, "password": p}) for n, p in tries]
    assert {(answer.status_code, answer.text) for answer in answers} == {
        (401, '{"detail":"The name or the password is wrong.","message":"The name or the password is wrong."}')
    }
    assert "set-cookie" not in answers[0].headers
    right = await server.post("/api/auth/sign-in", json={"name": "ANN", "password": PASSWORD})
    assert (right.status_code, right.json()["name"]) == (200, "ann")
    assert (await server.get("/api/conversations")).status_code == 200
    out = await server.post("/api/auth/sign-out")
    assert out.status_code == 204
    secret = right.headers["set-cookie"].split(";")[0]
    assert (await server.get("/api/conversations", headers={"Cookie": secret})).status_code == 401


async def test_who_guesses_passwords_waits_and_whoever_is_signed_in_does_not(server: Server) -> None:
    cookie = await add(server, "ann")
    guesses = [{"name": "ann", "password": f"wrong {n}"} for n in range(WRONG_FOR_NAME)]
    at_once = await asyncio.gather(*(server.post("/api/auth/sign-in", json=one) for one in guesses))
    assert {one.status_code for one in at_once} == {401}
    right = await server.post("/api/auth/sign-in", json={"name": "ann", "password": PASSWORD})
    assert right.status_code == 429, "a password, other than a token, can be guessed"
    assert int(right.headers["retry-after"]) > 0
    assert (await server.get("/api/auth/me", headers={"Cookie": cookie})).status_code == 200


async def test_the_token_of_the_settings_is_the_first_administrators(server: Server) -> None:
    shown = {"X-Session-API-Key": TOKEN}
    assert (await server.get("/api/conversations", headers=shown)).status_code == 401, "there is none yet"
    await add(server, "ann", Role.ADMINISTRATOR)
    await add(server, "bea", Role.ADMINISTRATOR)
    assert (await server.get("/api/auth/me", headers=shown)).json()["name"] == "ann"
    await server.app.services.database.users.change("ann", disabled=True)
    assert (await server.get("/api/auth/me", headers=shown)).status_code == 401


def asked(server: Server) -> list[tuple[str, str]]:
    """Each method of each route of the API, with some path."""

    def methods(route: BaseRoute) -> list[tuple[str, str]]:
        path = re.sub(r"\{[^}]+\}", "x", getattr(route, "path", ""))
        return [(method, path) for method in sorted(getattr(route, "methods", None) or ())]

    found = [one for route in server.app.api.router.routes for one in methods(route)]
    return [one for one in found if one[1].startswith(("/api/", "/v1/"))] + [("POST", "/mcp/mcp")]


async def test_what_the_server_counts_is_for_administrators(server: Server) -> None:
    user, reading = {"Cookie": await add(server, "uma")}, await token_of_admin(server)
    assert (await server.get("/metrics", headers=user)).status_code == 403
    assert (await server.get("/metrics", headers=reading)).status_code == 200


async def test_a_preview_is_over_for_a_user_who_is_let_in_no_more(server: Server) -> None:
    await token_of_admin(server)
    await add(server, "uma")
    users = server.app.services.database.users
    uma = await users.named("uma")
    assert uma is not None
    previews = server.app.services.previews
    address = previews.link("http", "127.0.0.1:3000", "a", 8000, uma.id)
    opened = await server.get(address)
    shown = {"Cookie": opened.headers["set-cookie"].split(";")[0]}
    page = address.split("?")[0]
    assert (await server.get(page, headers=shown)).status_code == 503, "its sandbox does not run"
    await users.change("uma", disabled=True)
    assert (await server.get(page, headers=shown)).status_code == 403
    await users.change("uma", disabled=False)
    assert (await server.get(page, headers=shown)).status_code == 503


async def test_what_a_role_or_a_scope_does_not_allow_is_refused_on_every_route(server: Server) -> None:
    await add(server, "ann", Role.ADMINISTRATOR)
    viewer = {"Cookie": await add(server, "vic", Role.VIEWER)}
    reading = await token_of(server, "ann", Permission.READ)
    writing = await token_of(server, "ann", Permission.WRITE)
    user = {"Cookie": await add(server, "uma")}
    left = {*STRANGERS, "/api/auth/sign-out", "/api/conversations/x/log/live"}  # what signs out, and what has no end
    routes = [one for one in asked(server) if one[1] not in left]
    assert len(routes) > 100
    for method, path in routes:
        changes = method not in ("GET", "HEAD", "OPTIONS")

        async def status(headers: Mapping[str, str], method: str = method, path: str = path) -> int:
            answer = await server.client.request(method, path, headers=headers, content=b"{")
            if answer.status_code == 403 and path.startswith("/api/"):
                assert answer.json()["detail"].startswith(("You may not ", "This token may not ")), path
            return answer.status_code

        is_admins = path.startswith(ADMINISTRATION)
        is_own = path.startswith(OWN_ACCOUNT)
        assert (await status(viewer) == 403) == (is_admins or (changes and not is_own)), (method, path)
        assert (await status(reading) == 403) == (is_admins or changes), (method, path)
        if is_admins or not changes:
            assert await status(writing) == 403, (method, path)
        if is_admins:
            assert await status(user) == 403, (method, path)


async def test_a_token_gives_no_more_than_its_maker_has_and_counts_until_it_is_revoked(server: Server) -> None:
    await add(server, "ann", Role.ADMINISTRATOR)
    cookie = {"Cookie": await add(server, "uma")}
    too_much = await server.post("/api/auth/tokens", json={"name": "x", "scopes": ["admin"]}, headers=cookie)
    assert too_much.status_code == 403
    made = (await server.post("/api/auth/tokens", json={"name": "x"}, headers=cookie)).json()
    shown = {"Authorization": f"Bearer {made['token']}"}
    assert (await server.get("/api/auth/me", headers=shown)).json()["scopes"] == ["read", "write"]
    (listed,) = (await server.get("/api/auth/tokens", headers=shown)).json()["results"]
    assert listed == {name: value for name, value in made.items() if name != "token"}
    anns = await token_of(server, "ann")
    assert (await server.client.delete(f"/api/auth/tokens/{made['id']}", headers=anns)).status_code == 404
    assert (await server.client.delete(f"/api/auth/tokens/{made['id']}", headers=cookie)).status_code == 204
    assert (await server.get("/api/auth/me", headers=shown)).status_code == 401


async def test_an_administrator_adds_changes_and_resets_users_and_stays_one(server: Server) -> None:
    shown = await token_of_admin(server)
    made = await server.post("/api/admin/users", json={"name": "bob", "role": "viewer"}, headers=shown)
    assert made.status_code == 201
    link = made.json()["path"].removeprefix(LINK_PATH)
    used = await server.post("/api/auth/link/use", json={"link": link, "name": "not this", "password": PASSWORD})
    assert used.json() == {"name": "bob", "role": "viewer", "scopes": ["admin", "read", "write"]}
    server.client.cookies.clear()
    bob = {"Cookie": used.headers["set-cookie"].split(";")[0]}
    twice = await server.post("/api/admin/users", json={"name": "B0B"}, headers=shown)
    assert (twice.status_code, twice.json()["detail"]) == (
        409,
        "name: it looks like the name of another user; choose another one",
    )
    changed = await server.client.patch("/api/admin/users/bob", json={"role": "user"}, headers=shown)
    assert changed.json()["role"] == "user"
    assert (await server.get("/api/auth/me", headers=bob)).json()["role"] == "user"
    last = await server.client.patch("/api/admin/users/ann", json={"disabled": True}, headers=shown)
    assert last.status_code == 409
    nobody = await server.client.patch("/api/admin/users/nobody", json={"disabled": True}, headers=shown)
    assert nobody.status_code == 404
    reset = (await server.post("/api/admin/users/bob/reset", headers=shown)).json()["path"].removeprefix(LINK_PATH)
    another = {"link": reset, "password": "another four words"}
    assert (await server.post("/api/auth/link/use", json=another)).status_code == 200
    server.client.cookies.clear()
    assert (await server.get("/api/auth/me", headers=bob)).status_code == 401, "other sign-ins have ended"
    listed = (await server.get("/api/admin/users", headers=shown)).json()["results"]
    assert [(one["name"], one["pending"]) for one in listed] == [("ann", False), ("bob", False)]


async def token_of_admin(server: Server) -> dict[str, str]:
    await add(server, "ann", Role.ADMINISTRATOR)
    return await token_of(server, "ann")


async def test_another_password_needs_the_present_one_and_ends_other_sign_ins(server: Server) -> None:
    here = {"Cookie": await add(server, "uma")}
    change = {"current": "not this one", "password": "another four words"}
    assert (await server.post("/api/auth/password", json=change, headers=here)).status_code == 403
    elsewhere = await server.post("/api/auth/sign-in", json={"name": "uma", "password": PASSWORD})
    server.client.cookies.clear()
    there = {"Cookie": elsewhere.headers["set-cookie"].split(";")[0]}
    known = (await server.get("/api/auth/sign-ins", headers=here)).json()["results"]
    assert sorted(one["current"] for one in known) == [False, True]
    change["current"] = PASSWORD
    assert (await server.post("/api/auth/password", json=change, headers=here)).status_code == 204
    assert (await server.get("/api/auth/me", headers=here)).status_code == 200
    assert (await server.get("/api/auth/me", headers=there)).status_code == 401
    again = {"name": "uma", "password": "another four words"}
    assert (await server.post("/api/auth/sign-in", json=again)).status_code == 200


async def test_a_database_that_cannot_be_asked_is_a_503_and_lets_nobody_in(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    cookie = {"Cookie": await add(server, "uma")}

    async def away(*_arguments: object) -> None:
        raise DatabaseError("the database is away", code="database_busy")

    monkeypatch.setattr(server.app.services.database.credentials, "by_sign_in", away)
    answer = await server.get("/api/conversations", headers=cookie)
    assert (answer.status_code, answer.json()["message"]) == (503, "the database is away")
    assert "retry-after" in answer.headers


@asynccontextmanager
async def listening(data_dir: Path) -> AsyncIterator[tuple[Server, str]]:
    async def choose() -> SandboxSelection:
        return SandboxSelection(FakeProvider(), "fake sandboxes for tests")

    app = create_app(Settings(data_dir=data_dir, users="accounts"), choose=choose)
    async with serving(app) as port:
        url = f"http://127.0.0.1:{port}"
        async with httpx.AsyncClient(base_url=url, timeout=20) as client:
            yield Server(app, client, FakeProvider()), url


async def test_what_is_open_ends_when_its_user_is_let_in_no_more(tmp_path: Path) -> None:
    async with listening(tmp_path) as (server, url):
        await token_of_admin(server)
        await add(server, "uma")
        key = await token_of(server, "uma")
        made = await server.post("/api/conversations", json={}, headers=key)
        conversation = made.json()["conversation_id"]
        query: dict[str, Any] = {"conversation_id": conversation, "latest_event_id": -1}
        query["session_api_key"] = key["X-Session-API-Key"]
        address = f"{url}?{'&'.join(f'{name}={value}' for name, value in query.items())}"
        path = f"/api/conversations/{conversation}/log/live"
        async with Client() as first, Client(transports=("polling",)) as second:
            async with server.client.stream("GET", path, headers=key) as log:
                assert log.status_code == 200
                for one in (first, second):
                    await one.connect(address)
                    await until(lambda one=one: one.ids)  # type: ignore[misc]
                await server.app.services.database.users.change("uma", disabled=True)
                with pytest.raises(httpx.HTTPError):
                    await asyncio.wait_for(log.aread(), 10)
            await until(lambda: first.goodbyes and second.goodbyes)
        assert (await server.get(path, headers=key)).status_code == 401


async def test_a_viewer_sees_a_conversation_and_says_nothing_in_it(tmp_path: Path) -> None:
    async with listening(tmp_path) as (server, url):
        await token_of_admin(server)
        await add(server, "uma")
        key = await token_of(server, "uma")
        made = await server.post("/api/conversations", json={}, headers=key)
        conversation = made.json()["conversation_id"]
        reading = await token_of(server, "uma", Permission.READ)
        async with Client() as client:
            address = f"{url}?conversation_id={conversation}&latest_event_id=-1"
            await client.connect(f"{address}&session_api_key={reading['X-Session-API-Key']}")
            await until(lambda: client.ids)
            await client.send({"action": "message", "args": {"content": "Build me a boat"}})
            await until(lambda: client.problems)
            assert client.problems == [
                "This token may not change anything: it has no scope write. Show one that has it."
            ]
