"""Signing in with MCP servers: real servers of tokens and of tools, and the tokens of one user."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from starlette.requests import Request
from starlette.responses import Response

from agent_core.errors import DISK_FULL, EventStoreError
from agent_core.mcp import oauth
from agent_core.mcp.config import McpAuth, McpServer
from agent_core.mcp.grants import Challenge, ServerSignIn, canonical, challenge_of, sign_in_id
from agent_core.mcp.oauth import OAuthClient, SignInError
from agent_core.mcp.servers import McpServers
from agent_core.mcp.sign_in import SignIns
from tests.authorization_server import ToolServer, browse, guarded_tools
from tests.unit.mcp.conftest import call, running
from tests.waiting import until

BACK = "http://127.0.0.1:9/oauth/callback"


class KeptInMemory:
    """A `SignInStore`."""

    def __init__(self) -> None:
        self.kept: dict[str, ServerSignIn] = {}

    async def load(self, server: str) -> ServerSignIn | None:
        return self.kept.get(server)

    async def save(self, sign_in: ServerSignIn) -> None:
        self.kept[sign_in.server] = sign_in

    def alone(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()


@pytest.fixture
def store() -> KeptInMemory:
    return KeptInMemory()


@pytest.fixture
def sign_ins(store: KeptInMemory) -> SignIns:
    return SignIns(store, advice="with a button")


def address_of(tools: ToolServer, **auth: str) -> McpServer:
    return McpServer(url=tools.url, auth=McpAuth(type="oauth2", **auth) if auth else McpAuth())


async def signed_in(sign_ins: SignIns, tools: ToolServer, **auth: str) -> dict[str, list[str]]:
    """Sign in as somebody who allows everything; the parameters of what was opened."""
    pending = await sign_ins.begin(address_of(tools, **auth), redirect_uri=BACK)
    await sign_ins.finish(pending, await browse(pending.url))
    return parse_qs(urlsplit(pending.url).query)


@asynccontextmanager
async def connected(sign_ins: SignIns, tools: ToolServer) -> AsyncIterator[McpServers]:
    async with running(McpServers({"guarded": address_of(tools)}, sign_ins=sign_ins)) as servers:
        yield servers


async def said(servers: McpServers, name: str) -> str:
    return " ".join(part.text for part in (await call(servers, name)).content if part.type == "text")


Answer = Callable[[Request], Awaitable[Response]]


def says(body: str | bytes, status: int = 200, **headers: str) -> Answer:
    async def answer(request: Request) -> Response:
        return Response(body, status, headers)

    return answer


async def test_a_server_that_wants_a_sign_in_is_used_as_soon_as_its_user_has_signed_in(sign_ins: SignIns) -> None:
    async with guarded_tools() as tools, connected(sign_ins, tools) as servers:
        assert servers.tools() == []
        assert servers.problems() == {}
        assert servers.wanted_sign_ins() == {
            "guarded": (sign_in_id(tools.url), "it wants you to sign in: with a button")
        }
        await signed_in(sign_ins, tools)
        async with asyncio.timeout(60):
            await servers.all_settled()
        assert servers.wanted_sign_ins() == {}
        assert (await said(servers, "whoami")).startswith("[Tool 'whoami' executed.] whoami with ")


async def test_the_sign_in_is_asked_for_as_the_protocol_says(sign_ins: SignIns) -> None:
    async with guarded_tools() as tools:
        opened = await signed_in(sign_ins, tools)
        assert opened["resource"] == [tools.url]
        assert opened["scope"] == ["read"]
        assert opened["code_challenge_method"] == ["S256"]
        assert opened["redirect_uri"] == [BACK]
        assert len(opened["state"][0]) >= 43
        (registered,) = tools.tokens.asked_at("register")
        assert registered["redirect_uris"] == f'["{BACK}"]'
        assert registered["application_type"] == '"native"'
        (exchanged,) = tools.tokens.asked_at("token")
        assert exchanged["resource"] == tools.url
        assert exchanged["redirect_uri"] == BACK


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post", "none"])
async def test_the_client_shows_who_it_is_as_the_server_of_tokens_wants_it(sign_ins: SignIns, method: str) -> None:
    async with guarded_tools(method=method) as tools:
        await signed_in(sign_ins, tools)
        assert await sign_ins.token(tools.url)


async def test_a_token_is_renewed_before_it_is_over_by_one_of_those_who_want_it(
    sign_ins: SignIns, store: KeptInMemory
) -> None:
    async with guarded_tools(lifetime=20) as tools:
        await signed_in(sign_ins, tools)
        first = await sign_ins.token(tools.url)
        tools.tokens.lifetime = 3600
        found = await asyncio.gather(*(sign_ins.token(tools.url) for _ in range(8)))
        assert len(set(found)) == 1
        assert found[0] != first
        assert [one["grant_type"] for one in tools.tokens.asked_at("token")] == [
            "authorization_code",
            "refresh_token",
            "refresh_token",
        ]


async def test_no_token_is_lost_where_it_cannot_be_stored(
    sign_ins: SignIns, store: KeptInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A renewed one ends the one before it."""
    refusals = [EventStoreError("the disk is full", code=DISK_FULL)]

    async def save(sign_in: ServerSignIn) -> None:
        if refusals:
            raise refusals[0]
        store.kept[sign_in.server] = sign_in

    async with guarded_tools() as tools:
        await signed_in(sign_ins, tools)
        old = await sign_ins.token(tools.url)
        monkeypatch.setattr(store, "save", save)
        with pytest.raises(EventStoreError, match="full"):
            await sign_ins.token(tools.url, refused=old)
        assert len(tools.tokens.asked_at("token")) == 1, "nothing was renewed that could not be kept"
        kept, refusals[:] = refusals[:], []
        renewing = asyncio.create_task(sign_ins.token(tools.url, refused=old))
        await until(lambda: len(tools.tokens.asked_at("token")) == 2)
        refusals[:] = kept  # in the moment in which it was renewed
        fresh = await renewing
        assert fresh != old
        assert await sign_ins.token(tools.url) == fresh
        refusals.clear()
        assert await sign_ins.token(tools.url) == fresh
        assert await SignIns(store, advice="with a button").token(tools.url) == fresh, "it is stored by now"


async def test_a_token_that_is_refused_in_the_middle_is_renewed_and_nobody_notices(sign_ins: SignIns) -> None:
    async with guarded_tools() as tools:
        await signed_in(sign_ins, tools)
        async with connected(sign_ins, tools) as servers:
            before = await said(servers, "whoami")
            tools.tokens.end_tokens()
            after = await said(servers, "whoami")
            assert "executed" in after
            assert after != before


async def test_a_server_of_tokens_that_does_not_renew_them_has_them_kept_as_they_are(
    sign_ins: SignIns, store: KeptInMemory
) -> None:
    async with guarded_tools(rotates=False) as tools:
        await signed_in(sign_ins, tools)
        for _ in range(2):
            tools.tokens.end_tokens()
            token = await sign_ins.token(tools.url)
            assert await sign_ins.token(tools.url, refused=token) != token


async def test_where_nothing_can_be_renewed_the_user_is_asked_again_and_the_tools_come_back(
    sign_ins: SignIns, store: KeptInMemory
) -> None:
    async with guarded_tools() as tools:
        await signed_in(sign_ins, tools)
        async with connected(sign_ins, tools) as servers:
            tools.tokens.end_tokens()
            tools.tokens.refresh_tokens.clear()
            assert "did not do it: it wants its user to sign in first" in await said(servers, "whoami")
            assert servers.wanted_sign_ins()
            assert store.kept[tools.url].grant is None
            await signed_in(sign_ins, tools)
            assert servers.wanted_sign_ins() == {}
            assert "executed" in await said(servers, "whoami")


ILL = [
    (503, "server_error"),
    (500, "invalid_grant"),
    (400, "temporarily_unavailable"),
    (400, "invalid_request"),
    (401, "unauthorized_client"),
    (403, ""),
    (404, ""),
    (429, "slow_down"),
    (302, ""),
]


async def test_a_server_of_tokens_that_is_ill_costs_no_sign_in(sign_ins: SignIns, store: KeptInMemory) -> None:
    async with guarded_tools() as tools:
        await signed_in(sign_ins, tools)
        async with connected(sign_ins, tools) as servers:
            tools.tokens.end_tokens()
            for status, error in ILL:
                tools.tokens.refresh_status, tools.tokens.refresh_error = status, error
                text = await said(servers, "whoami")
                words = f"{error} (HTTP status {status})" if error else f"HTTP status {status}"
                assert f"no token could be had for it: the server of tokens gave none: {words}" in text
                assert store.kept[tools.url].grant is not None
                assert servers.wanted_sign_ins() == {}
            tools.tokens.refresh_status = 200
            assert "executed" in await said(servers, "whoami")


async def test_a_registration_that_is_forgotten_there_is_made_anew_with_the_next_sign_in(
    sign_ins: SignIns, store: KeptInMemory
) -> None:
    async with guarded_tools() as tools:
        for status in (400, 401, 200):
            await signed_in(sign_ins, tools)
            token = await sign_ins.token(tools.url)
            tools.tokens.clients.clear()
            tools.tokens.instead["/token"] = says('{"error": "invalid_client"}', status)
            assert await sign_ins.token(tools.url, refused=token) is None
            assert store.kept[tools.url].grant is None
            tools.tokens.instead.clear()
        assert len(tools.tokens.asked_at("register")) == 3


async def test_a_token_is_shown_as_long_as_it_lasts_though_it_cannot_be_renewed(store: KeptInMemory) -> None:
    now = [1_000.0]
    sign_ins = SignIns(store, advice="", now=lambda: now[0])
    async with guarded_tools(lifetime=100) as tools:
        await signed_in(sign_ins, tools)
        token = await sign_ins.token(tools.url)
        tools.tokens.refresh_status = 503
        now[0] += 90
        assert await sign_ins.token(tools.url) == token
        now[0] += 20
        with pytest.raises(SignInError, match="HTTP status 503"):
            await sign_ins.token(tools.url)


async def test_those_who_wait_for_a_token_are_told_why_there_is_none_and_do_not_ask_again(sign_ins: SignIns) -> None:
    async with guarded_tools() as tools:
        await signed_in(sign_ins, tools)
        token = await sign_ins.token(tools.url)
        is_asked, may_answer = asyncio.Event(), asyncio.Event()

        async def slow(request: Request) -> Response:
            tools.tokens.asked.append(("slow", {}))
            is_asked.set()
            await may_answer.wait()
            return Response("<h1>Bad gateway</h1>", 502)

        tools.tokens.instead["/token"] = slow
        asking = [asyncio.create_task(sign_ins.token(tools.url, refused=token)) for _ in range(5)]
        await is_asked.wait()
        may_answer.set()
        problems = await asyncio.gather(*asking, return_exceptions=True)
        assert {f"{one}" for one in problems} == {"the server of tokens gave none: HTTP status 502"}
        assert len(tools.tokens.asked_at("slow")) == 1


METADATA = "/.well-known/oauth-authorization-server"
GARBAGE: dict[str, tuple[str, Answer, str]] = {
    "a description that is a page": (METADATA, says("<html>"), "does not describe itself"),
    "a description that is null": (METADATA, says("null"), "does not describe itself"),
    "a description that leads elsewhere": (METADATA, says("", 302, location="https://x.example/"), "describe itself"),
    "a description without an end of nesting": (METADATA, says("[" * 200_000), "does not describe itself"),
    "a registration that is a page": ("/register", says("<html>", 201), "the answer is no registration"),
    "a registration without a client": ("/register", says("{}", 201), "the answer is no registration"),
    "a registration with a client that is null": ("/register", says('{"client_id": null}', 201), "no registration"),
    "a registration of another address": (
        "/register",
        says('{"client_id": "a", "redirect_uris": ["https://x.example/"]}', 201),
        "its redirect address was replaced",
    ),
    "a registration that leads elsewhere": ("/register", says("", 307, location="https://x.example/"), "status 307"),
    "a token that is a page": ("/token", says("<html>"), "not of the form that it has to be"),
    "a token that is a list": ("/token", says("[]"), "not of the form that it has to be"),
    "a token for another kind of request": ("/token", says('{"access_token": "a", "token_type": "mac"}'), "the form"),
    "a token with a line end": (
        "/token",
        says('{"access_token": "a\\nX-Evil: 1", "token_type": "bearer"}'),
        "gave one that cannot be sent",
    ),
    "a token that leads elsewhere": ("/token", says("", 307, location="https://x.example/"), "HTTP status 307"),
    "a token without end": ("/token", says(b"{" + b" " * 400_000), "more than 262144 bytes"),
}


async def test_whatever_a_server_of_tokens_answers_it_is_told_what_was_wrong_with_it(sign_ins: SignIns) -> None:
    async with guarded_tools() as tools:
        for path, answer, problem in GARBAGE.values():
            tools.tokens.instead = {path: answer}
            with pytest.raises(SignInError, match=problem):
                await signed_in(sign_ins, tools)
        tools.tokens.instead.clear()
        await signed_in(sign_ins, tools)


async def test_a_server_of_tokens_that_is_silent_is_waited_for_no_longer_than_the_limit(sign_ins: SignIns) -> None:
    async def silent(request: Request) -> Response:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        return Response()

    async with guarded_tools(instead={"/token": silent}) as tools:
        pending = await sign_ins.begin(address_of(tools), redirect_uri=BACK)
        answer = await browse(pending.url)
        async with OAuthClient(tools.url, limit_seconds=0.2) as client:
            with pytest.raises(SignInError, match=r"/token did not answer within 0\.2 s"):
                await client.finish(pending, answer)


async def test_a_server_whose_answers_are_all_slow_is_waited_for_no_longer_than_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(oauth, "BEGIN_LIMITS", 0)
    async with guarded_tools() as tools, OAuthClient(tools.url) as client:
        with pytest.raises(SignInError, match="after 0 s it was not found out where to sign in"):
            await client.begin(redirect_uri=BACK, auth=McpAuth())


async def test_a_server_that_names_no_address_is_told_so(sign_ins: SignIns) -> None:
    async with guarded_tools() as tools:
        tools.described = None
        for named in ("http://[", "//", "javascript:alert(1)", "https://" + "a" * 5_000, "https://a:b", '"=,;'):
            tools.header = f'Bearer resource_metadata="{named}"'
            with pytest.raises(SignInError):
                await sign_ins.begin(address_of(tools), redirect_uri=BACK)


async def test_more_rights_are_asked_for_beside_those_that_there_are(sign_ins: SignIns) -> None:
    async with guarded_tools() as tools:
        await signed_in(sign_ins, tools)
        async with connected(sign_ins, tools) as servers:
            assert "sign in first" in await said(servers, "write")
            assert "executed" in await said(servers, "whoami")
            opened = await signed_in(sign_ins, tools)
            assert opened["scope"] == ["read write"]
            assert "executed" in await said(servers, "write")
            assert len(tools.tokens.asked_at("register")) == 1


async def test_tokens_are_told_to_whoever_hides_them(sign_ins: SignIns) -> None:
    hidden: set[str] = set()
    async with guarded_tools() as tools:
        servers = McpServers({"guarded": address_of(tools)}, sign_ins=sign_ins)
        servers.start(hide=hidden.update)
        try:
            await servers.all_settled()
            await signed_in(sign_ins, tools)
            assert {*tools.tokens.tokens, *tools.tokens.refresh_tokens} <= hidden
        finally:
            await servers.close()


async def test_signing_out_has_the_tokens_revoked_and_none_shown(sign_ins: SignIns) -> None:
    async with guarded_tools() as tools:
        await signed_in(sign_ins, tools)
        assert await sign_ins.sign_out(tools.url) is True
        assert all(one.is_over for one in (*tools.tokens.tokens.values(), *tools.tokens.refresh_tokens.values()))
        assert await sign_ins.token(tools.url) is None
        assert await sign_ins.sign_out(tools.url) is False


async def test_a_client_that_was_registered_by_hand_is_used(sign_ins: SignIns) -> None:
    async with guarded_tools(registers=False) as tools:
        tools.tokens.clients["ours"] = {"client_id": "ours", "client_secret": "s", "redirect_uris": [BACK]}
        opened = await signed_in(sign_ins, tools, client_id="ours", client_secret="s", scope="read write")
        assert opened["client_id"] == ["ours"]
        assert opened["scope"] == ["read write"]
        with pytest.raises(SignInError, match=f"register one there with the redirect address {re.escape(BACK)}"):
            await SignIns(KeptInMemory(), advice="").begin(address_of(tools), redirect_uri=BACK)


async def test_a_client_describes_itself_where_the_server_of_tokens_takes_that() -> None:
    async with guarded_tools(changes={"client_id_metadata_document_supported": True}) as tools:
        async with OAuthClient(tools.url) as client:
            pending = await client.begin(redirect_uri=BACK, auth=McpAuth(), document_url="https://us.example/client")
        assert pending.client.client_id == "https://us.example/client"
        assert tools.tokens.asked_at("register") == []


LIES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "another issuer": ({"issuer": "https://elsewhere.example"}, {}, "says that it is another one"),
    "no PKCE": ({"code_challenge_methods_supported": None}, {}, "does not say that it knows PKCE"),
    "only plain PKCE": ({"code_challenge_methods_supported": ["plain"]}, {}, "does not say that it knows PKCE"),
    "another server's tokens": ({}, {"resource": "https://bank.example/mcp"}, "is of another one"),
    "a deeper server's tokens": ({}, {"resource": "{tools}/deeper"}, "is of another one"),
    "http elsewhere": ({"authorization_endpoint": "http://as.example/authorize"}, {}, "is not encrypted"),
    "a password in an address": (
        {"authorization_endpoint": "https://a:b@as.example/"},
        {},
        "address that is not taken",
    ),
    "the cloud's own": ({}, {"authorization_servers": ["https://169.254.169.254"]}, "no public address"),
    "http to the cloud's own": ({}, {"authorization_servers": ["http://169.254.169.254"]}, "is not encrypted"),
    "a neighbour": ({"registration_endpoint": "https://10.0.0.1/register"}, {}, "no public address"),
    "a neighbour's page": ({"authorization_endpoint": "https://192.168.1.1/reboot"}, {}, "no public address"),
}


@pytest.mark.parametrize(("changes", "described", "problem"), LIES.values(), ids=LIES)
async def test_what_servers_say_of_themselves_is_checked_before_anybody_is_sent_there(
    sign_ins: SignIns, changes: dict[str, Any], described: dict[str, Any], problem: str
) -> None:
    async with guarded_tools(changes=changes) as tools:
        tools.described = {name: _at(value, tools) for name, value in described.items()}
        with pytest.raises(SignInError, match=problem):
            await sign_ins.begin(address_of(tools), redirect_uri=BACK)


def _at(value: Any, tools: ToolServer) -> Any:
    return value.replace("{tools}", tools.url) if isinstance(value, str) else value


async def test_a_public_server_does_not_lead_to_this_machine() -> None:
    async with OAuthClient("https://8.8.8.8/mcp") as client:
        for url in ("http://127.0.0.1:1/", "https://localhost:1/", "http://[::1]:1/", "https://[::ffff:127.0.0.1]/"):
            with pytest.raises(SignInError, match=r"no public address|not encrypted"):
                await client.begin(redirect_uri=BACK, auth=McpAuth(), challenge=Challenge(metadata_url=url))


async def test_an_answer_without_end_is_not_read(sign_ins: SignIns) -> None:
    async with guarded_tools(changes={"x": "y" * 400_000}) as tools:
        with pytest.raises(SignInError, match="more than 262144 bytes"):
            await sign_ins.begin(address_of(tools), redirect_uri=BACK)


async def test_a_server_without_a_description_is_its_own_server_of_tokens(sign_ins: SignIns) -> None:
    async with guarded_tools() as tools:
        tools.described = None
        with pytest.raises(SignInError, match=r"could not be registered: HTTP status 404"):
            await sign_ins.begin(address_of(tools), redirect_uri=BACK)


ANSWERS: dict[str, tuple[dict[str, str | None], str]] = {
    "another state": ({"state": "x" * 43}, "from another sign-in than was begun"),
    "no state": ({"state": None}, "from another sign-in than was begun"),
    "another issuer": ({"iss": "https://elsewhere.example"}, "of another server of tokens"),
    "no issuer": ({"iss": None}, "does not say whose it is"),
    "no code": ({"code": None}, "without a code"),
    "a refusal": ({"code": None, "error": "access_denied"}, "refused there: access_denied"),
    "a refusal in markup": ({"code": None, "error": "<script>"}, "an error without a known name"),
}


@pytest.mark.parametrize(("changes", "problem"), ANSWERS.values(), ids=ANSWERS)
async def test_what_a_browser_comes_back_with_is_checked_before_any_code_is_sent(
    sign_ins: SignIns, changes: dict[str, str | None], problem: str
) -> None:
    async with guarded_tools() as tools:
        pending = await sign_ins.begin(address_of(tools), redirect_uri=BACK)
        answer: dict[str, str | None] = {**await browse(pending.url), **changes}
        with pytest.raises(SignInError, match=problem):
            await sign_ins.finish(pending, {name: value for name, value in answer.items() if value is not None})
        assert tools.tokens.asked_at("token") == []
        assert await sign_ins.token(tools.url) is None


async def test_a_sign_in_that_took_too_long_is_over(store: KeptInMemory) -> None:
    now = [1_000.0]
    sign_ins = SignIns(store, advice="", now=lambda: now[0])
    async with guarded_tools() as tools:
        pending = await sign_ins.begin(address_of(tools), redirect_uri=BACK)
        answer = await browse(pending.url)
        now[0] += 601
        with pytest.raises(SignInError, match="took longer than 10 minutes"):
            await sign_ins.finish(pending, answer)


async def test_a_code_counts_once(sign_ins: SignIns) -> None:
    async with guarded_tools() as tools:
        pending = await sign_ins.begin(address_of(tools), redirect_uri=BACK)
        answer = await browse(pending.url)
        await sign_ins.finish(pending, answer)
        with pytest.raises(SignInError, match="invalid_grant"):
            await sign_ins.finish(pending, answer)
        assert await sign_ins.token(tools.url)


async def test_a_server_that_takes_a_key_is_not_signed_in_to(sign_ins: SignIns) -> None:
    async with guarded_tools() as tools:
        server = McpServer(url=tools.url, headers={"authorization": "Bearer own"})
        async with running(McpServers({"keyed": server}, sign_ins=sign_ins)) as servers:
            assert servers.wanted_sign_ins() == {}
            assert "HTTP status 401" in servers.problems()["keyed"][0]
        assert set(tools.shown) == {"own"}


async def test_nothing_that_is_secret_is_shown_by_what_is_kept(sign_ins: SignIns, store: KeptInMemory) -> None:
    async with guarded_tools() as tools:
        pending = await sign_ins.begin(address_of(tools), redirect_uri=BACK)
        await sign_ins.finish(pending, await browse(pending.url))
        shown = f"{pending!r} {store.kept!r} {pending.model_dump_json()} {store.kept[tools.url].model_dump_json()}"
        grant = store.kept[tools.url].grant
        assert grant is not None
        for secret in (*grant.secrets, pending.state.get_secret_value(), pending.verifier.get_secret_value()):
            assert secret not in shown
        assert ServerSignIn.model_validate_json(store.kept[tools.url].to_text()) == store.kept[tools.url]


CHALLENGES: list[tuple[int, str, Challenge | None]] = [
    (401, "", Challenge()),
    (401, 'Bearer realm="x, scope=y", resource_metadata="https://a/b"', Challenge("https://a/b", None)),
    (401, 'Basic realm="a", Bearer scope="a b",error="invalid_token"', Challenge(None, "a b")),
    (401, "Bearer scope=one, resource_metadata=https://a/b", Challenge("https://a/b", "one")),
    (403, 'Bearer error="insufficient_scope", scope="w"', Challenge(None, "w", True)),
    (403, 'Bearer error="invalid_token"', None),
    (403, "", None),
    (500, 'Bearer error="insufficient_scope"', None),
]


@pytest.mark.parametrize(("status", "header", "challenge"), CHALLENGES)
def test_a_refusal_says_what_is_wanted(status: int, header: str, challenge: Challenge | None) -> None:
    assert challenge_of(status, {"www-authenticate": header}) == challenge


def test_a_long_refusal_without_any_meaning_takes_no_longer_than_it_is() -> None:
    """A header of a hundred thousand letters would take minutes if each were a beginning."""
    assert challenge_of(401, {"www-authenticate": "a-" * 50_000}) == Challenge()


def test_tokens_are_kept_for_the_address_however_it_is_spelled() -> None:
    assert canonical("HTTPS://Host.Example:1/Path?q=A#part") == "https://host.example:1/Path?q=A"
