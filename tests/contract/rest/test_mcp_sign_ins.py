"""Signing in with MCP servers through REST: a real server of tokens, a real server of tools, and conversations."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from sqlalchemy import text

from agent_core.mcp.grants import sign_in_id
from agent_core.testing.model_server import ModelServer
from agent_core.testing.model_turns import call, finish, say
from server.auth.identity import Identity, OneTokenAuthenticator
from server.db.repositories.mcp_sign_ins import purpose_of_sign_in
from tests.authorization_server import ToolServer, guarded_tools
from tests.contract.rest.conftest import MakeServer, Server
from tests.contract.rest.test_mcp import THREE_EMPTY_LISTS, observed

LISTED = "/api/mcp-sign-ins"
ORIGIN = {"origin": "http://127.0.0.1:3000"}


async def configure(server: Server, *tools: ToolServer, model: ModelServer | None = None, **fields: Any) -> None:
    values: dict[str, Any] = {}
    if model is not None:
        values = {"llm_model": "openai/scripted", "llm_base_url": model.url, "llm_api_key": "key"}
    servers = {**THREE_EMPTY_LISTS, "shttp_servers": [{"url": one.url, **fields} for one in tools]}
    assert (await server.post("/api/settings", json={**values, "mcp_config": servers})).status_code == 200


async def begin(server: Server, name: str, **body: Any) -> httpx.Response:
    return await server.post(f"{LISTED}/{name}", json=body or None, headers=ORIGIN)


async def allow(url: str) -> str:
    """Allow it where the server of tokens asks; where the browser is sent back to."""
    async with httpx.AsyncClient(trust_env=False) as browser:
        answer = await browser.get(url)
    assert answer.status_code == 302, answer.text
    return str(answer.headers["location"])


async def sign_in(server: Server, tools: ToolServer, **body: Any) -> httpx.Response:
    begun = await begin(server, sign_in_id(tools.url), **body)
    assert begun.status_code == 200, begun.text
    return await server.get(await allow(begun.json()["url"]))


async def state_of(server: Server, tools: ToolServer) -> str:
    listed = (await server.get(LISTED)).json()["results"]
    return str(next(one["state"] for one in listed if one["id"] == sign_in_id(tools.url)))


async def test_a_conversation_says_that_a_sign_in_is_wanted_and_has_the_tools_after_it(make_server: MakeServer) -> None:
    turns = [say("I cannot do that yet."), call("whoami", {}), finish("Done.")]
    async with guarded_tools() as tools, ModelServer(turns) as model, make_server(generate_titles=False) as server:
        await configure(server, tools, model=model)
        conversation_id = await server.create(initial_user_msg="Who am I?")
        asked = await observed(server, conversation_id, "error")
        assert asked["extras"] == {"error_id": "", "sign_in": sign_in_id(tools.url)}
        assert asked["content"].startswith(f"MCP server '{tools.url}': it wants you to sign in: there is a button for")
        assert await state_of(server, tools) == "wanted"
        back = await sign_in(server, tools, conversation_id=conversation_id)
        assert back.status_code == 303
        assert back.headers["location"] == f"/conversations/{conversation_id}"
        assert await state_of(server, tools) == "signed_in"
        await server.post(f"/api/conversations/{conversation_id}/message", json={"message": "Try again."})
        result = await observed(server, conversation_id, "mcp")
        assert "whoami with <secret_hidden>" in result["content"]
        assert len(tools.tokens.tokens) == 1


async def test_a_token_that_is_over_in_the_middle_is_renewed_without_the_user(make_server: MakeServer) -> None:
    async with guarded_tools(lifetime=5) as tools, make_server(generate_titles=False) as server:
        await configure(server, tools)
        await sign_in(server, tools)
        model = ModelServer([call("whoami", {}), finish("Done.")])
        async with model:
            await configure(server, tools, model=model)
            conversation_id = await server.create(initial_user_msg="Who am I?")
            assert "whoami with" in (await observed(server, conversation_id, "mcp"))["content"]
        assert {one["grant_type"] for one in tools.tokens.asked_at("token")} == {"authorization_code", "refresh_token"}


async def test_tokens_outlive_the_server_and_are_not_to_be_read_in_its_files(
    make_server: MakeServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with guarded_tools(consent="at once") as tools:
        async with make_server() as server:
            await configure(server, tools)
            begun = await begin(server, sign_in_id(tools.url))
            location = await allow(begun.json()["url"])
        async with make_server() as server:  # in between, too
            server.client.cookies.update(begun.cookies)
            assert (await server.get(location)).status_code == 303
        async with make_server() as server:
            assert await state_of(server, tools) == "signed_in"
            assert await server.app.services.mcp_sign_ins.of("").token(tools.url) in tools.tokens.tokens
        (client,) = tools.tokens.clients.values()
        (exchanged,) = tools.tokens.asked_at("token")
        state = parse_qs(urlsplit(location).query)["state"][0]
        secrets = [*tools.tokens.tokens, *tools.tokens.refresh_tokens, client["client_secret"]]
        secrets += [exchanged["code_verifier"], exchanged["code"], state]
        stored = b"".join(path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file())
        for secret in secrets:
            assert secret.encode() not in stored
        for secret in secrets[:3]:
            assert secret not in caplog.text


async def test_what_a_browser_comes_back_with_counts_once_and_for_the_browser_that_began(server: Server) -> None:
    async with guarded_tools() as tools:
        await configure(server, tools)
        begun = await begin(server, sign_in_id(tools.url))
        (cookie,) = begun.headers.get_list("set-cookie")
        assert "HttpOnly" in cookie
        assert "Path=/oauth/callback" in cookie
        assert "samesite=lax" in cookie.lower()
        location = await allow(begun.json()["url"])
        mine = dict(server.client.cookies)
        server.client.cookies.clear()
        stranger = await server.get(location)
        assert stranger.status_code == 400
        assert "was not begun in this browser" in stranger.text
        server.client.cookies.update(dict.fromkeys(mine, "x" * 43))
        assert (await server.get(location)).status_code == 400
        server.client.cookies.update(mine)
        assert (await server.get(location)).status_code == 303
        assert (await server.get(location)).status_code == 400
        assert await state_of(server, tools) == "signed_in"


async def test_only_what_was_begun_last_counts_and_no_state_but_its_own(server: Server) -> None:
    async with guarded_tools() as tools:
        await configure(server, tools)
        first = await begin(server, sign_in_id(tools.url))
        before = await allow(first.json()["url"])
        second = await begin(server, sign_in_id(tools.url))
        assert (await server.get(before)).status_code == 400
        for query in ("", "?state=", "?code=a", "?state=%00", "?state=a&state=b", f"?state={'x' * 5_000}"):
            assert (await server.get(f"/oauth/callback{query}")).status_code == 400
        assert (await server.get(await allow(second.json()["url"]))).status_code == 303


async def test_there_are_so_many_sign_ins_and_no_more(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.db.repositories.mcp_sign_ins.MAX_SIGN_INS", 1)
    async with guarded_tools() as one, guarded_tools() as other:
        await configure(server, one, other)
        assert (await begin(server, sign_in_id(one.url))).status_code == 200
        refused = await begin(server, sign_in_id(other.url))
        assert refused.status_code == 409
        assert "as many as one may have" in refused.json()["detail"]


async def test_a_refused_consent_is_told_and_nothing_is_kept(server: Server) -> None:
    async with guarded_tools(consent="refuse") as tools:
        await configure(server, tools)
        answer = await sign_in(server, tools)
        assert answer.status_code == 409
        assert "it was refused there: access_denied" in answer.text
        assert "<b>" not in answer.text
        assert await state_of(server, tools) == "wanted"


async def test_a_hostile_server_is_told_of_and_sends_nobody_anywhere(server: Server) -> None:
    async with guarded_tools() as tools:
        tools.described = {"authorization_servers": ["https://169.254.169.254/latest"]}
        await configure(server, tools)
        answer = await begin(server, sign_in_id(tools.url))
        assert answer.status_code == 409
        assert "no public address" in answer.json()["detail"]


async def test_where_the_server_is_for_others_too_this_machine_is_out_of_reach(make_server: MakeServer) -> None:
    async with guarded_tools() as tools, make_server(host="0.0.0.0", token="t" * 24) as server:  # noqa: S104
        server.client.headers["x-session-api-key"] = "t" * 24
        tools.described = {"authorization_servers": [tools.tokens.url.replace("127.0.0.1", "localhost")]}
        named = tools.url.replace("127.0.0.1", "tools.example")
        servers = {**THREE_EMPTY_LISTS, "shttp_servers": [named]}
        await server.post("/api/settings", json={"mcp_config": servers})
        answer = await begin(server, sign_in_id(named))
        assert answer.status_code == 409


async def test_signing_out_revokes_the_tokens_and_the_server_wants_a_sign_in_again(server: Server) -> None:
    async with guarded_tools() as tools:
        await configure(server, tools)
        name = sign_in_id(tools.url)
        assert (await server.client.delete(f"{LISTED}/{name}")).status_code == 404
        await sign_in(server, tools)
        answer = await server.client.delete(f"{LISTED}/{name}")
        assert answer.json() == {"revoked": True, "message": ""}
        assert all(one.is_over for one in tools.tokens.tokens.values())
        assert await state_of(server, tools) == "wanted"


async def test_what_is_signed_out_of_and_not_configured_any_more_is_not_listed_for_ever(server: Server) -> None:
    async with guarded_tools() as tools:
        await configure(server, tools)
        await sign_in(server, tools)
        await server.post("/api/settings", json={"mcp_config": THREE_EMPTY_LISTS})
        assert await state_of(server, tools) == "signed_in"
        path = f"{LISTED}/{sign_in_id(tools.url)}"
        assert (await server.client.delete(path)).json() == {"revoked": True, "message": ""}
        assert (await server.get(LISTED)).json() == {"results": []}
        assert (await server.client.delete(path)).status_code == 404


async def test_a_server_without_a_key_is_listed_before_it_was_asked_and_one_with_a_key_is_not(server: Server) -> None:
    async with guarded_tools() as tools, guarded_tools() as keyed:
        servers = [{"url": f"{tools.url}?key=in-the-address"}, {"url": keyed.url, "api_key": "k"}]
        await server.post("/api/settings", json={"mcp_config": {**THREE_EMPTY_LISTS, "shttp_servers": servers}})
        (listed,) = (await server.get(LISTED)).json()["results"]
        assert listed == {
            "id": sign_in_id(f"{tools.url}?key=in-the-address"),
            "server": tools.url,
            "state": "unknown",
            "scope": None,
        }


async def test_unknown_ids_and_conversations_of_others_are_refused(server: Server) -> None:
    async with guarded_tools() as tools:
        await configure(server, tools)
        assert (await begin(server, "0" * 32)).status_code == 404
        assert (await begin(server, "no-id")).status_code == 422
        assert (await begin(server, sign_in_id(tools.url), conversation_id="none")).status_code == 404
        assert (await begin(server, sign_in_id(tools.url), then="https://evil.example")).status_code == 422


async def test_a_client_that_was_registered_by_hand_is_used_and_its_secret_is_hidden(server: Server) -> None:
    back = "http://127.0.0.1:3000/oauth/callback"
    async with guarded_tools(registers=False) as tools:
        tools.tokens.clients["ours"] = {"client_id": "ours", "client_secret": "by hand", "redirect_uris": [back]}
        oauth = {"client_id": "ours", "client_secret": "by hand", "scope": "read write"}
        await configure(server, tools, oauth=oauth)
        shown = (await server.get("/api/settings")).json()["mcp_config"]
        assert shown["shttp_servers"][0]["oauth"] == {**oauth, "client_secret": "**********"}
        assert (await server.post("/api/settings", json={"mcp_config": shown})).status_code == 200
        assert (await sign_in(server, tools)).status_code == 303
        (listed,) = (await server.get(LISTED)).json()["results"]
        assert listed["scope"] == "read write"


@pytest.mark.parametrize(
    ("host", "origin", "expected"),
    [
        ("127.0.0.1:3000", None, "http://127.0.0.1:3000"),
        ("localhost:3000", "http://localhost:3000", "http://localhost:3000"),
        ("drydock.example", "https://drydock.example", "https://drydock.example"),
        ("drydock.example", "https://tools.example", None),
        ("drydock.example", None, None),
    ],
)
async def test_browsers_are_sent_back_to_where_the_page_is_and_nowhere_else(
    make_server: MakeServer, host: str, origin: str | None, expected: str | None
) -> None:
    allowed = {"allowed_hosts": ("drydock.example",), "allowed_origins": ("https://tools.example",)}
    async with guarded_tools() as tools, make_server(**allowed) as server:
        await configure(server, tools)
        headers = {"host": host, "x-forwarded-host": "evil.example", "x-forwarded-proto": "https"}
        headers |= {"origin": origin} if origin else {}
        answer = await server.post(f"{LISTED}/{sign_in_id(tools.url)}", headers=headers)
        if expected is None:
            assert answer.status_code == 409
            assert "open this page over https" in answer.json()["detail"]
            return
        opened = parse_qs(urlsplit(answer.json()["url"]).query)
        assert opened["redirect_uri"] == [f"{expected}/oauth/callback"]
        assert ("Secure" in answer.headers["set-cookie"]) == expected.startswith("https")


async def test_the_callback_answers_for_no_other_host(server: Server) -> None:
    answer = await server.get("/oauth/callback?state=a", headers={"host": "evil.example"})
    assert answer.status_code == 403


async def test_the_client_describes_itself_without_a_token(make_server: MakeServer) -> None:
    async with make_server(token="t" * 24, allowed_hosts=("drydock.example",)) as server:
        headers = {"host": "drydock.example"}
        found = (await server.get("/oauth/client.json", headers=headers)).json()
        assert found["client_id"] == "http://drydock.example/oauth/client.json"
        assert found["redirect_uris"] == ["http://drydock.example/oauth/callback"]
        assert (await server.get(LISTED)).status_code == 401


async def test_users_have_sign_ins_of_their_own(make_server: MakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async def identify(self: OneTokenAuthenticator, headers: Any) -> Identity | None:
        return Identity(headers["x-user"]) if "x-user" in headers else None

    monkeypatch.setattr(OneTokenAuthenticator, "identify", identify)
    monkeypatch.setattr(OneTokenAuthenticator, "required", property(lambda self: True))
    async with guarded_tools() as tools, make_server() as server:
        ann, bob = {"x-user": "ann"}, {"x-user": "bob"}
        servers = {**THREE_EMPTY_LISTS, "shttp_servers": [tools.url]}
        for user in (ann, bob):
            await server.post("/api/settings", json={"mcp_config": servers}, headers=user)
        path = f"{LISTED}/{sign_in_id(tools.url)}"
        begun = await server.post(path, headers=ann)
        location = await allow(begun.json()["url"])
        assert (await server.get(location, headers=bob)).status_code == 400  # in the same browser, even
        assert (await server.get(location, headers=ann)).status_code == 303
        (listed_for_ann,) = (await server.get(LISTED, headers=ann)).json()["results"]
        (listed_for_bob,) = (await server.get(LISTED, headers=bob)).json()["results"]
        assert (listed_for_ann["state"], listed_for_bob["state"]) == ("signed_in", "unknown")
        sign_ins = server.app.services.mcp_sign_ins
        assert await sign_ins.of("bob").token(tools.url) is None
        assert (await server.client.delete(path, headers=bob)).status_code == 404
        assert await sign_ins.of("ann").token(tools.url)
        begun_at_once = await asyncio.gather(*(server.post(path, headers=user) for user in (ann, bob)))
        of_ann, of_bob = [await allow(one.json()["url"]) for one in begun_at_once]
        crossed = await asyncio.gather(server.get(of_bob, headers=ann), server.get(of_ann, headers=bob))
        assert [one.status_code for one in crossed] == [400, 400]
        ended = await asyncio.gather(server.get(of_ann, headers=ann), server.get(of_bob, headers=bob))
        assert [one.status_code for one in ended] == [303, 303]
        assert len({await sign_ins.of(name).token(tools.url) for name in ("ann", "bob")} - {None}) == 2


async def test_what_cannot_be_read_any_more_counts_as_not_signed_in(make_server: MakeServer) -> None:
    async with guarded_tools() as tools, make_server() as server:
        await configure(server, tools)
        await sign_in(server, tools)
        database = server.app.services.database
        other = database.secrets.encrypt("{}", purpose=purpose_of_sign_in("somebody else", sign_in_id(tools.url)))

        async def apply(connection: Any) -> None:
            await connection.execute(text("UPDATE mcp_sign_ins SET sealed = :sealed"), {"sealed": other})

        await database.writer.change(apply)
        assert await state_of(server, tools) == "unknown"
        assert (await sign_in(server, tools)).status_code == 303
        assert await state_of(server, tools) == "signed_in"


async def test_two_conversations_renew_a_token_once(make_server: MakeServer) -> None:
    async with guarded_tools() as tools, make_server() as server:
        await configure(server, tools)
        await sign_in(server, tools)
        sign_ins = server.app.services.mcp_sign_ins
        first = sign_ins.of("")
        token = await first.token(tools.url)
        tools.tokens.end_tokens()
        found = await asyncio.gather(*(sign_ins.of("").token(tools.url, refused=token) for _ in range(5)))
        assert len(set(found)) == 1
        assert [one["grant_type"] for one in tools.tokens.asked_at("token")] == ["authorization_code", "refresh_token"]
