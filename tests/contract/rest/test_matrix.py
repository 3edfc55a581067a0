"""Everybody against everything of somebody else: each route of the router, with each credential, Host and Origin."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import pytest
import pytest_asyncio
import socketio

from agent_core.mcp.grants import ServerSignIn
from server.auth import doorkeeper, passwords
from server.auth.identity import Permission, Role
from server.auth.passwords import PasswordCost
from server.auth.preview_addresses import mark_of
from server.db.repositories.notes import Note
from server.db.repositories.plugins import StoredPlugin
from server.db.tables import metadata
from server.doors.preview.access import PreviewPass
from server.http.gate import ADMINISTRATION, METRICS
from server.sockets.gateway import USER_EVENTS
from tests.contract.rest.conftest import MODEL_SECONDS, Server, serving
from tests.contract.rest.ownership import LAST, ROUTES, C
from tests.contract.sockets.loopback import Client
from tests.serving import serving as serving_app

pytestmark = pytest.mark.asyncio(loop_scope="module")

MARK: Final = "bobs"
"""In everything that is bob's."""
READING: Final = ("GET", "HEAD", "OPTIONS")
MCP_HEADERS: Final = {"accept": "application/json, text/event-stream"}
OF_THE_MOMENT: Final = {"date", "etag", "x-trace-id"}
OPEN_ENDED: Final = f"GET {C}/log/live"


class Things(NamedTuple):
    """What stands for the parameters of a path."""

    conversation_id: str
    webhook_id: str
    note_id: str
    token_id: str
    browser_id: str
    mcp_id: str
    secret_id: str = "BOBS_KEY"
    skill_name: str = "bobs-skill"
    plugin_name: str = "bobs-plugin"
    profile: str = "bobs-profile"

    def filled(self, text: str) -> str:
        """A path, or what is sent, with these."""
        known = self._asdict()
        if text.startswith("/api/llm-profiles"):
            known["name"] = self.profile
        if text.startswith("/api/auth/sign-ins"):
            known["sign_in_id"] = self.browser_id
        elif text.startswith("/api/mcp-sign-ins"):
            known["sign_in_id"] = self.mcp_id
        return re.sub(r"\{(\w+)(?::path)?\}", lambda found: known.get(found[1], "1"), text)

    def without(self, text: str) -> str:
        """A text with all of these left out."""
        for one in sorted(self, key=len, reverse=True):
            text = text.replace(one, "?")
        return text


def unlike(things: Things) -> Things:
    """Things of the same form that nobody has."""
    letters = str.maketrans("0123456789abcdefB", "123456789abcdef0D")  # any id has one of these
    return Things(*(one.translate(letters) for one in things))


class Matrix(NamedTuple):
    """A server, who may be let in there, and what is bob's."""

    server: Server
    keys: Mapping[str, Mapping[str, str]]
    refused: Mapping[str, Mapping[str, str]]
    bobs: Things

    async def ask(self, name: str, headers: Mapping[str, str], things: Things) -> tuple[int, str, dict[str, str]]:
        """What a route answers, with these things in path, query and body; they are left out of it."""
        method, _, path = name.partition(" ")
        sent: dict[str, Any] = dict(ROUTES[name].sent)
        for kind in ("json", "params"):
            if kind in sent:
                sent[kind] = json.loads(re.sub(r"\{conversation_id\}", things.conversation_id, json.dumps(sent[kind])))
        method = "POST" if method == "*" else method
        request = self.server.client.build_request(
            method, things.filled(path), headers={**MCP_HEADERS, **headers}, **sent
        )
        if name == OPEN_ENDED:
            request.url = request.url.copy_merge_params({"limit": "1"})
        answer = await self.server.client.send(request)
        self.server.client.cookies.clear()
        kept = {name: things.without(one) for name, one in answer.headers.items() if name not in OF_THE_MOMENT}
        return answer.status_code, things.without(answer.text), kept


async def kept_of_bob(matrix: Matrix) -> list[str]:
    """Every row of the database that is bob's, or his conversation's."""
    database = matrix.server.app.services.database
    bob = await database.users.named("bob")
    assert bob is not None
    his = {bob.id, f"user:{bob.id}", matrix.bobs.conversation_id}
    found = [
        f"{table.name} {[one for one in row if not isinstance(one, datetime)]}"
        for table in metadata.tables.values()
        for row in await database.engines.select(table.select())
        if his & {one for one in row if isinstance(one, str)}
    ]
    return sorted(found)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def matrix(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Matrix]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passwords, "COST", PasswordCost(memory_kib=64, iterations=1))
        for limit in ("WRONG_AT_ONCE", "WRONG_IN_ALL"):  # who shows wrong tokens is slowed down: test_guessing.py
            patch.setattr(doorkeeper, limit, 100_000)
        async with serving(tmp_path_factory.mktemp("matrix"), users="accounts", verify_git_tokens=False) as server:
            yield await furnished(server)


async def furnished(server: Server) -> Matrix:
    """Users, their tokens, and everything that bob can have."""
    database = server.app.services.database
    users = {
        name: await database.users.add(name, role)
        for name, role in (
            ("root", Role.ADMINISTRATOR),
            ("ann", Role.USER),
            ("bob", Role.USER),
            ("vic", Role.VIEWER),
            ("gone", Role.USER),
            ("old", Role.USER),
        )
    }

    async def key(name: str, *, lasts: timedelta | None = None) -> tuple[dict[str, str], str]:
        secret, made = await database.credentials.make_token(users[name].id, MARK, tuple(Permission), lasts=lasts)
        return {"X-Session-API-Key": secret}, made.id

    keys = {name: (await key(name))[0] for name in ("root", "ann", "vic")}
    keys["bob"], token_id = await key("bob")
    gone, _ = await key("gone")
    await database.users.change("gone", disabled=True)
    revoked, revoked_id = await key("old")
    await database.credentials.revoke(users["old"].id, revoked_id)
    expired, _ = await key("old", lasts=-timedelta(seconds=1))
    accounts = server.app.accounts
    assert accounts is not None
    ended = (await accounts.begin(users["old"], address="", browser="", is_safe=False)).split(";")[0]
    (sign_in,) = await database.credentials.sign_ins(users["old"].id)
    await database.credentials.end_sign_in(users["old"].id, sign_in.id)
    await accounts.begin(users["bob"], address="bobs", browser="bobs", is_safe=False)
    (browser,) = await database.credentials.sign_ins(users["bob"].id)
    refused = {"none": {}, "wrong": {"X-Session-API-Key": "not-a-token-of-anybody-here"}}
    refused |= {"disabled": gone, "revoked": revoked, "expired": expired, "ended": {"Cookie": ended}}

    async def post(path: str, body: dict[str, Any], *, method: str = "POST") -> Any:
        answer = await server.client.request(method, path, json=body, headers=keys["bob"])
        assert answer.status_code in (200, 201), (path, answer.text)
        return answer.json()

    servers = {"shttp_servers": [{"url": "http://127.0.0.1:9/bobs"}]}
    await post("/api/settings", {"language": "de", "git_user_name": MARK})
    await post("/api/secrets", {"name": "BOBS_KEY", "value": "bobs-value"})
    await post("/api/skills/bobs-skill", {"content": "---\nname: bobs-skill\n---\nbobs"}, method="PUT")
    await post("/api/llm-profiles/bobs-profile", {"model": "openai/bobs"}, method="PUT")
    tokens = {"provider_tokens": {"github": {"token": "bobs-token", "host": "http://127.0.0.1:9"}}}
    await post("/api/add-git-providers", tokens)
    conversation = await server.client.post("/api/conversations", json={}, headers=keys["bob"])
    conversation_id = conversation.json()["conversation_id"]

    async def is_ready() -> bool:
        info = await server.client.get(f"/api/conversations/{conversation_id}", headers=keys["bob"])
        return bool(info.json()["agent_state"] == "awaiting_user_input")

    await server.until(is_ready, seconds=MODEL_SECONDS)
    await post(f"/api/conversations/{conversation_id}", {"title": MARK}, method="PATCH")
    await post("/api/settings", {"mcp_config": servers})
    await post(f"/api/conversations/{conversation_id}/submit-feedback", {"polarity": "positive", "email": "bobs@b.c"})
    webhook = await post("/api/webhooks", {"url": "https://bobs.example.com/", "events": ["error"]})
    user_id = users["bob"].id
    note = await database.notes.add(
        Note(user_id=user_id, title="bobs", content="bobs", conversation_id=conversation_id)
    )
    plugin = StoredPlugin(owner=f"user:{user_id}", name="bobs-plugin", source="https://h/bobs", commit="0" * 40)
    await database.plugins.add(plugin)
    await database.mcp_sign_ins.save(ServerSignIn(server="http://127.0.0.1:9/bobs", is_wanted=True), user_id)
    entries = (await server.client.get("/api/mcp-sign-ins", headers=keys["bob"])).json()["results"]
    bobs = Things(conversation_id, webhook["id"], note.id, token_id, browser.id, entries[0]["id"])
    return Matrix(server, keys, refused, bobs)


def routes(server: Server) -> list[str]:
    found = []
    for route in server.app.api.router.routes:
        path = getattr(route, "path", None)
        if path:  # what is left is the page's
            found += [f"{method} {path}" for method in getattr(route, "methods", None) or ("*",)]
    return found


def named(*kinds: str) -> list[str]:
    return [name for name, entry in ROUTES.items() if entry.kind in kinds]


async def test_every_route_of_the_router_is_in_the_matrix_and_nothing_else(matrix: Matrix) -> None:
    assert set(routes(matrix.server)) == ROUTES.keys()
    for name, entry in ROUTES.items():
        assert (entry.kind == "admin") == name.partition(" ")[2].startswith((*ADMINISTRATION, METRICS))
        assert entry.kind == "thing" or "_id}" not in name, f"{name}: whose is it?"


@pytest.mark.parametrize("asker", ["ann", "root", "vic"])
async def test_what_is_somebody_elses_is_as_little_there_as_what_nobody_has(matrix: Matrix, asker: str) -> None:
    before = await kept_of_bob(matrix)
    assert len(before) > 10
    unknown = unlike(matrix.bobs)
    for name in named("thing"):
        theirs = await matrix.ask(name, matrix.keys[asker], matrix.bobs)
        assert theirs == await matrix.ask(name, matrix.keys[asker], unknown), name
        assert MARK not in str(theirs).lower(), name
    assert await kept_of_bob(matrix) == before


@pytest.mark.parametrize("asker", ["ann", "root", "vic"])
async def test_nothing_of_somebody_else_shows_in_what_is_ones_own(matrix: Matrix, asker: str) -> None:
    before = await kept_of_bob(matrix)
    for name in named("own", "server", "admin"):
        status, text, headers = await matrix.ask(name, matrix.keys[asker], matrix.bobs)
        # What everybody does, with the names of their things, is what the audit log tells administrators.
        is_told = name == "GET /api/admin/audit" and asker == "root"
        assert is_told or MARK not in (text + str(headers)).lower(), name
        assert ROUTES[name].kind != "admin" or status == 403 or asker == "root", name
    assert await kept_of_bob(matrix) == before


async def test_who_is_not_let_in_is_told_the_same_at_every_route(matrix: Matrix) -> None:
    for who, shown in matrix.refused.items():
        for name in named("own", "thing", "server", "admin", "account"):
            status, text, headers = await matrix.ask(name, shown, matrix.bobs)
            assert status == 401, (who, name)
            assert MARK not in (text + str(headers)).lower(), (who, name)
            kept = {name: one for name, one in headers.items() if name != "content-length"}
            if name.startswith("HEAD "):
                continue
            assert (text, kept) == await _refusal(matrix, name.partition(" ")[2].startswith("/v1/")), (who, name)


async def _refusal(matrix: Matrix, is_openai: bool) -> tuple[str, dict[str, str]]:
    """How somebody is refused who shows nothing, where nothing is."""
    path = "/v1/models" if is_openai else "/api/there-is-none"
    answer = await matrix.server.client.get(path)
    kept = {name: one for name, one in answer.headers.items() if name not in {*OF_THE_MOMENT, "content-length"}}
    return answer.text, kept


DOORS: Final = (
    *("/", "/index.html", "/conversations/x", "/api/conversations", "/api/auth/me", "/api/admin/users", "/v1/models"),
    *("/mcp/mcp", "/socket.io/?EIO=4&transport=polling", "/openapi.json", "/docs", "/metrics", "/oauth/callback"),
    *("/errors", "/server_info", "/alive", "/health", "/ready"),
)
"""One path of each part of the server."""


async def test_each_door_answers_its_own_hosts_and_pages_alone(matrix: Matrix) -> None:
    own = "http://127.0.0.1:3000"
    foreign = (
        "http://evil.example",
        "null",
        "https://127.0.0.1:3001",
        "http://8000-aaaaaaaaaaaaaaaaaaaaaaaaaa.localhost",
    )
    for path in DOORS:
        asked = {"own": {}, "own origin": {"origin": own}, "foreign host": {"host": "evil.example"}}
        asked |= {one: {"origin": one} for one in foreign}
        for what, headers in asked.items():
            answer = await matrix.server.client.get(path, headers={**matrix.keys["root"], **headers})
            assert (answer.status_code == 403) == (not what.startswith("own")), (path, what, answer.status_code)
            assert "access-control-allow-origin" not in answer.headers, (path, what)


async def test_what_names_a_conversation_elsewhere_than_in_the_path_is_asked_whose_it_is(matrix: Matrix) -> None:
    chat = {"model": "drydock", "messages": [{"role": "user", "content": "Hello"}]}
    listed = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    arguments = {"repo_name": "o/n", "source_branch": "a", "target_branch": "b", "title": "t", "body": "b"}
    call = {**listed, "params": {"name": "create_pr", "arguments": arguments}}
    webhook = (
        await matrix.server.client.post(
            "/api/webhooks", json={"url": "https://hooks.example.com/"}, headers=matrix.keys["ann"]
        )
    ).json()
    answers = []
    for things in (matrix.bobs, unlike(matrix.bobs)):
        named = things.conversation_id
        for path, body, more in (
            ("/api/webhooks", {"url": "https://hooks.example.com/", "conversation_id": named}, {}),
            (f"/api/webhooks/{webhook['id']}/replay", {"conversation_id": named, "after_event_id": -1}, {}),
            ("/v1/chat/completions", {**chat, "conversation_id": named}, {}),
            ("/mcp/mcp", call, {"x-openhands-serverconversation-id": named}),
            (f"/api/mcp-sign-ins/{things.mcp_id}", {"conversation_id": named}, {}),
        ):
            answer = await matrix.server.client.post(
                path, json=body, headers={**MCP_HEADERS, **matrix.keys["ann"], **more}
            )
            answers.append((answer.status_code, things.without(answer.text)))
    theirs, nobodys = answers[:5], answers[5:]
    assert theirs == nobodys
    assert [status for status, _ in theirs] == [404, 404, 404, 200, 404]
    assert "Conversation ? not found" in theirs[3][1]


async def test_of_one_idempotency_key_each_user_has_their_own(matrix: Matrix) -> None:
    made = set()
    for name in ("bob", "ann", "bob", "root"):
        headers = {**matrix.keys[name], "Idempotency-Key": "the-same-for-all"}
        answer = await matrix.server.client.post("/api/conversations", json={}, headers=headers)
        made.add((name, answer.json()["conversation_id"]))
    assert len(made) == 3


async def test_a_preview_is_as_little_there_for_others_as_one_that_nobody_has(matrix: Matrix) -> None:
    for conversation in (matrix.bobs.conversation_id, unlike(matrix.bobs).conversation_id):
        host = f"8000-{mark_of(conversation)}.localhost:3000"
        for name in ("ann", "root", "bob"):
            answer = await matrix.server.client.get("/", headers={**matrix.keys[name], "host": host})
            assert (answer.status_code, MARK in answer.text) == (403, False), "a token opens no preview"
    statuses = {}
    for name in ("bob", "gone"):
        user = await matrix.server.app.services.database.users.named(name)
        assert user is not None
        grant = PreviewPass(matrix.bobs.conversation_id, 8000, user.id, "http://127.0.0.1:3000")
        passes = matrix.server.app.services.previews.passes
        host = f"8000-{mark_of(matrix.bobs.conversation_id)}.localhost:3000"
        cookie = passes.cookie(passes.make("cookie", grant, seconds=60), is_safe=True).split(";")[0]
        answer = await matrix.server.client.get("/", headers={"host": host, "cookie": cookie})
        statuses[name] = answer.status_code
    assert statuses == {"bob": 502, "gone": 403}, "a pass counts for hours, but for nobody who is let in no more"


async def test_a_socket_of_somebody_else_is_refused_as_for_a_conversation_that_is_not_there(matrix: Matrix) -> None:
    assert USER_EVENTS == ("oh_user_action", "oh_action"), "whoever adds one says here who may send it"
    async with serving_app(matrix.server.app, lifespan="off") as port:
        told = []
        for name in ("ann", "root", "vic", *matrix.refused):
            shown = {**matrix.keys, **matrix.refused}[name].get("X-Session-API-Key", "")
            for things in (matrix.bobs, unlike(matrix.bobs)):
                query = f"conversation_id={things.conversation_id}&latest_event_id=-1&session_api_key={shown}"
                told.append((name, things.without(await refusal(f"http://127.0.0.1:{port}?{query}"))))
        assert told[::2] == told[1::2]
        assert len({words for _, words in told}) == 2, "there is none, or nobody is let in"
        key = matrix.keys["bob"]["X-Session-API-Key"]
        async with Client() as client:
            path = f"http://127.0.0.1:{port}?conversation_id={matrix.bobs.conversation_id}&session_api_key={key}"
            await client.connect(f"{path}&latest_event_id=-1")


async def refusal(address: str) -> str:
    """What a socket is told that is refused."""
    told: list[object] = []
    async with Client() as client:
        client.socket.on("connect_error", told.append)
        with pytest.raises(socketio.exceptions.ConnectionError):
            await client.connect(address)
    return str(told)


async def test_its_owner_is_answered_otherwise_at_every_route(matrix: Matrix) -> None:
    """Or what others are told would say nothing of whether they were asked whose it is. It comes last: it deletes."""
    names = [name for name in named("thing") if ROUTES[name].tells and name != OPEN_ENDED]
    reading = [name for name in names if name.startswith("GET ")]
    removing = [name for name in names if name in LAST or name.startswith("DELETE ")]
    changing = [name for name in names if name not in (*reading, *removing)]
    removing.sort(key=lambda name: (name == "DELETE /api/auth/tokens/{token_id}", name == f"DELETE {C}"))
    alike = {}
    for name in (*reading, *changing, *removing):
        nobodys = await matrix.ask(name, matrix.keys["bob"], unlike(matrix.bobs))
        if await matrix.ask(name, matrix.keys["bob"], matrix.bobs) == nobodys:
            alike[name] = nobodys[:2]
    assert alike == {}
