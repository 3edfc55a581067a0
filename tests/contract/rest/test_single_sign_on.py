"""Users who sign in by an OpenID provider that others wrote, or come by the word of a proxy, at a whole server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from agent_core.events.event import utc_now
from agent_core.troubles import Trouble
from server.auth import oidc
from server.auth.identity import Role
from server.auth.oidc import OidcClient, Person
from server.http.gate import OIDC_BEGIN, OIDC_FINISH
from server.single_sign_on import names_for
from tests.contract.rest.conftest import MakeServer, Server
from tests.openid import RealProvider, SigningIn, plain_client, played_provider, real_provider

HERE = "http://127.0.0.1:3000"
PROXY = ("10.0.0.5", 4000)
ACCOUNTS: dict[str, dict[str, Any]] = {
    "ann": {
        "preferred_username": "Ann Smith",
        "email": "Ann@Example.com",
        "email_verified": True,
        "groups": ["admins"],
    },
    "bob": {"preferred_username": "bob", "groups": ["engineers", "all"]},
    "eve": {"preferred_username": "ann.smith", "email": "ann@example.com", "email_verified": True, "groups": ["all"]},
    "pat": {"groups": ["engineers"]},
    "sam": {"preferred_username": "sam", "groups": ["engineers"]},
}
ROLES = {"admins": "administrator", "engineers": "user", "guests": "viewer"}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oidc, "REQUEST_SECONDS", 60.0)
    monkeypatch.setattr(oidc, "FINISH_SECONDS", 180.0)


@pytest.fixture(scope="module")
def provider() -> Iterator[RealProvider]:
    with real_provider(ACCOUNTS) as running:
        yield running


@pytest.fixture
async def client(provider: RealProvider) -> OidcClient:
    return await provider.register(HERE + OIDC_FINISH)


def settings_for(client: OidcClient, **further: Any) -> dict[str, Any]:
    return {
        "users": "accounts",
        "oidc_issuer": client.issuer,
        "oidc_client_id": client.client_id,
        "oidc_client_secret": client.client_secret,
        "oidc_scopes": ("openid", "profile", "email", "groups"),
        "group_roles": ROLES,
        **further,
    }


class Browser:
    """Someone's browser, at the server and at the provider."""

    def __init__(self, server: Server) -> None:
        transport = httpx.ASGITransport(app=server.app, raise_app_exceptions=False)
        self.here = httpx.AsyncClient(transport=transport, base_url=HERE, headers={"sec-fetch-mode": "navigate"})
        self.there = plain_client()

    async def __aenter__(self) -> Browser:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.here.aclose()
        await self.there.aclose()

    async def way(self, login: str, then: str = "/conversations/x") -> str:
        """To the provider; returns the address that it leads back to."""
        begun = await self.here.get(OIDC_BEGIN, params={"then": then})
        assert begun.status_code == 303, begun.text
        cookie = begun.headers["set-cookie"]
        assert all(part in cookie for part in ("HttpOnly", "SameSite=lax", f"Path={OIDC_FINISH}", "Max-Age=600"))
        return await SigningIn(self.there).go(begun.headers["location"], login, until=HERE)

    async def sign_in(self, login: str, then: str = "/conversations/x") -> httpx.Response:
        return await self.here.get((await self.way(login, then)).removeprefix(HERE))

    async def me(self) -> dict[str, Any]:
        answer = await self.here.get("/api/auth/me")
        return dict(answer.json()) if answer.status_code == 200 else {"status": answer.status_code}


async def test_people_sign_in_and_are_what_their_groups_say(make_server: MakeServer, client: OidcClient) -> None:
    async with make_server(**settings_for(client)) as server, Browser(server) as browser:
        assert await browser.me() == {"status": 401}
        assert (await server.get("/api/auth/me")).json()["sign_in"] == ["password", "oidc"]
        done = await browser.sign_in("ann")
        assert (done.status_code, done.headers["location"]) == (303, "/conversations/x")
        assert await browser.me() == {
            "name": "Ann.Smith",
            "role": "administrator",
            "scopes": ["admin", "read", "write"],
        }
        (ann,) = (await browser.here.get("/api/admin/users")).json()["results"]
        assert (ann["email"], ann["pending"]) == ("ann@example.com", False)
        tried = await server.post("/api/auth/sign-in", json={"name": "Ann.Smith", "password": ""})
        assert tried.status_code == 401  # there is no password that would do
        async with Browser(server) as other:
            await other.sign_in("bob")
            assert (await other.me())["role"] == "user"
        all_records = (await browser.here.get("/api/admin/audit")).json()["results"]
        said = [one for one in reversed(all_records) if one["action"] != "sign_in.refused"]
        assert [(one["action"], one["target"]["id"]) for one in said] == [
            ("user.added", "Ann.Smith"),
            ("sign_in.begun", "Ann.Smith"),
            ("user.added", "bob"),
            ("sign_in.begun", "bob"),
        ]
        assert said[2]["details"] == {"role": "user", "by": client.issuer, "subject": "bob"}


async def test_who_looks_like_another_is_somebody_else(make_server: MakeServer, client: OidcClient) -> None:
    async with make_server(**settings_for(client, default_role="viewer")) as server:
        for login in ("ann", "eve", "eve"):
            async with Browser(server) as browser:
                await browser.sign_in(login)
        assert [(user.name, user.role, user.email) for user in await server.app.services.database.users.all()] == [
            ("Ann.Smith", Role.ADMINISTRATOR, "ann@example.com"),
            ("ann.smith-2", Role.VIEWER, None),
        ]


async def test_who_is_in_no_group_or_has_no_account_is_told_so(
    make_server: MakeServer, client: OidcClient, caplog: pytest.LogCaptureFixture
) -> None:
    async with make_server(**settings_for(client)) as server, Browser(server) as browser:
        refused = await browser.sign_in("eve")
        assert refused.status_code == 403
        assert "none of your groups may use this server" in refused.text
        assert await browser.me() == {"status": 401}
        assert not any(name.startswith("drydock_oidc") for name in browser.here.cookies)
        assert server.app.services.metrics.troubles(Trouble.SIGN_IN_FAILED) == 1
        assert "ann.smith (eve at the provider) is not let in: none of your groups" in caplog.text
    async with make_server(**settings_for(client, create_users=False)) as server, Browser(server) as browser:
        assert "you have no account here" in (await browser.sign_in("ann")).text
        assert await server.app.services.database.users.all() == []


async def test_a_way_back_counts_once_in_the_browser_that_began_it(make_server: MakeServer, client: OidcClient) -> None:
    async with make_server(**settings_for(client)) as server, Browser(server) as browser:
        back = (await browser.way("ann")).removeprefix(HERE)
        cookies = dict(browser.here.cookies)
        async with Browser(server) as other:
            strange = await other.here.get(back)
            assert (strange.status_code, "not begun in this browser" in strange.text) == (400, True)
            (await other.way("bob")).removeprefix(HERE)
            assert (await other.here.get(back)).status_code == 400  # with the cookie of another beginning
            assert (await browser.here.get(back)).status_code == 303
            assert not any(name.startswith("drydock_oidc") for name in browser.here.cookies)
            other.here.cookies.update(cookies)  # stolen, but late
            replayed = await other.here.get(back)
            assert (replayed.status_code, "gone on with already" in replayed.text) == (400, True)
            assert await other.me() == {"status": 401}


async def test_nobody_is_sent_elsewhere(make_server: MakeServer, client: OidcClient) -> None:
    async with make_server(**settings_for(client)) as server:
        for then in ("https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)", "/\r\nX: y"):
            async with Browser(server) as browser:
                assert (await browser.sign_in("ann", then)).headers["location"] == "/"


async def test_a_sign_in_lasts_for_the_stated_time_and_is_refused_to_who_is_disabled_there(
    make_server: MakeServer, client: OidcClient, provider: RealProvider
) -> None:
    async with make_server(**settings_for(client, oidc_sign_in_hours=2)) as server, Browser(server) as browser:
        done = await browser.sign_in("pat")
        assert "Max-Age=7200" in done.headers["set-cookie"]
        (one,) = (await browser.here.get("/api/auth/sign-ins")).json()["results"]
        lasts = datetime.fromisoformat(one["expires_at"]) - utc_now()
        assert timedelta(hours=1.9) < lasts <= timedelta(hours=2)
        await provider.disable("pat")
        assert (await browser.me())["role"] == "user"  # for that time
        begun = await browser.here.get(OIDC_BEGIN)
        with pytest.raises(AssertionError):  # the provider asks for a login, and lets nobody further
            await SigningIn(browser.there).go(begun.headers["location"], "pat", until=HERE)


async def test_roles_are_looked_up_with_each_sign_in_and_the_last_administrator_stays_one(
    make_server: MakeServer, client: OidcClient
) -> None:
    async with make_server(**settings_for(client)) as server, Browser(server) as root, Browser(server) as browser:
        await root.sign_in("ann")
        await browser.sign_in("sam")
        users = server.app.services.database.users
        await users.change("sam", role=Role.ADMINISTRATOR)
        await browser.sign_in("sam")
        assert (await browser.me())["role"] == "user"
        await users.change("sam", disabled=True)
        assert await browser.me() == {"status": 401}  # at once
        assert "is disabled" in (await browser.sign_in("sam")).text
    less = settings_for(client, group_roles={"admins": "viewer"})
    async with make_server(**less) as server, Browser(server) as browser:
        await browser.sign_in("ann")
        assert (await browser.me())["role"] == "administrator"


async def test_groups_are_in_the_claim_that_the_settings_name(make_server: MakeServer) -> None:
    async with played_provider() as played:
        played.claims = {"realm_access": {"roles": ["engineers", "admins"]}, "groups": ["guests"]}
        chosen = settings_for(played.client(), oidc_groups_claim="realm_access.roles")
        async with make_server(**chosen) as server, Browser(server) as browser:
            begun = await browser.here.get(OIDC_BEGIN)
            back = await browser.there.get(begun.headers["location"])
            assert (await browser.here.get(back.headers["location"].removeprefix(HERE))).status_code == 303
            assert (await browser.me())["role"] == "administrator"


async def test_a_provider_that_is_down_is_told_and_who_is_signed_in_stays_so(make_server: MakeServer) -> None:
    async with played_provider() as played:
        client = played.client()
        further = {"group_roles": {}, "default_role": "user"}
        async with make_server(**settings_for(client, **further)) as server, Browser(server) as browser:
            begun = await browser.here.get(OIDC_BEGIN)
            back = await browser.there.get(begun.headers["location"])
            assert (await browser.here.get(back.headers["location"].removeprefix(HERE))).status_code == 303
            begun = await browser.here.get(OIDC_BEGIN)
            back = await browser.there.get(begun.headers["location"])
            played.instead["/token"] = lambda: httpx.Response(500)  # type: ignore[assignment,return-value]
            down = await browser.here.get(back.headers["location"].removeprefix(HERE))
            assert (down.status_code, "try again later" in down.text) == (503, True)
            assert "retry-after" in down.headers
            assert (await browser.me())["name"] == "Ann"
    async with make_server(**settings_for(client, **further)) as server, Browser(server) as browser:
        down = await browser.here.get(OIDC_BEGIN)
        assert (down.status_code, "cannot be reached" in down.text) == (503, True)
        assert "played secret" not in down.text


async def test_a_server_without_a_provider_has_no_way_there(make_server: MakeServer) -> None:
    async with make_server(users="accounts") as server:
        assert (await server.get(OIDC_BEGIN)).status_code in (401, 404)
        assert (await server.get("/api/auth/me")).json()["sign_in"] == ["password"]


# --- by the word of a proxy ---


def by_proxy(server: Server, peer: tuple[str, int] = PROXY, **headers: str) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=server.app, raise_app_exceptions=False, client=peer)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.AsyncClient(transport=transport, base_url=HERE, headers=named)


def proxied(make_server: MakeServer, **further: Any) -> AbstractAsyncContextManager[Server]:
    chosen = {"user_header": "Remote-User", "user_groups_header": "Remote-Groups", "user_header_from": [PROXY[0]]}
    found: AbstractAsyncContextManager[Server] = make_server(
        **{"users": "accounts", "group_roles": ROLES, **chosen, **further}
    )
    return found


async def me(client: httpx.AsyncClient) -> Any:
    answer = await client.get("/api/auth/me")
    return answer.json()["role"] if answer.status_code == 200 else answer.status_code


async def test_the_proxys_users_are_let_in_and_nobody_elses(
    make_server: MakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with proxied(make_server) as server:
        async with by_proxy(server, Remote_User="ann", Remote_Groups="all, admins") as ann:
            assert await me(ann) == "administrator"
            assert (await ann.get("/api/auth/me")).json()["name"] == "ann"
            assert (await ann.post("/api/conversations", json={})).status_code == 200
        async with by_proxy(server, Remote_User="bob", Remote_Groups="engineers|all") as bob:
            assert await me(bob) == "user"
            assert (await bob.get("/api/conversations")).json()["results"] == []
            assert (await bob.get("/api/admin/users")).status_code == 403
        async with by_proxy(server, Remote_User="eve", Remote_Groups="all") as eve:
            assert await me(eve) == 401
            assert "eve, whom a proxy names, is not let in: none of your groups" in caplog.text
        async with by_proxy(server, ("10.0.0.6", 4000), Remote_User="ann", Remote_Groups="admins") as elsewhere:
            assert await me(elsewhere) == 401
        assert server.app.services.metrics.troubles(Trouble.USER_HEADER_REFUSED) == 1
        assert server.app.services.metrics.troubles(Trouble.SIGN_IN_FAILED) == 1


async def test_groups_count_with_each_request_and_a_disabled_user_is_out(make_server: MakeServer) -> None:
    async with (
        proxied(make_server) as server,
        by_proxy(server, Remote_User="root", Remote_Groups="admins") as root,
        by_proxy(server, Remote_User="ann", Remote_Groups="admins") as ann,
    ):
        await me(root)
        assert await me(ann) == "administrator"
        ann.headers["Remote-Groups"] = "guests"
        assert await me(ann) == "viewer"
        (changed,) = (await root.get("/api/admin/audit", params={"action": "user.changed"})).json()["results"]
        assert changed["details"] == {"role": "viewer", "by": "proxy"}
        assert (await ann.post("/api/conversations", json={})).status_code == 403
        ann.headers["Remote-Groups"] = "none"
        assert await me(ann) == 401
        ann.headers["Remote-Groups"] = "guests"
        await server.app.services.database.users.change("ann", disabled=True)
        assert await me(ann) == 401


async def test_sockets_know_the_proxys_users_too(make_server: MakeServer) -> None:
    async with proxied(make_server, default_role="user") as server:
        opening = {"EIO": "4", "transport": "polling"}
        for peer, is_known in ((PROXY, True), (("10.0.0.6", 4000), False)):
            async with by_proxy(server, peer, Remote_User="ann") as client:
                assert (
                    '"sid":"refused"' not in (await client.get("/socket.io/", params=opening)).text.replace(" ", "")
                ) is is_known
        accounts = server.app.accounts
        assert accounts is not None
        found = await accounts.identify({"remote-user": "ann"})
        assert found is not None
        still = await server.app.services.database.credentials.still({found.credential})
        assert still == {found.credential: found}  # so that what is open stays open


async def test_a_name_that_is_a_header_of_bytes_is_nobodys(make_server: MakeServer) -> None:
    async with proxied(make_server, default_role="user") as server:
        for value in (b"\xff", b"", b" "):
            async with by_proxy(server) as client:
                answer = await client.get("/api/auth/me", headers=[(b"remote-user", value)])
                assert answer.status_code == 401


@pytest.mark.parametrize(
    ("person", "first"),
    [
        (Person("i", "s", ("ann",)), "ann"),
        (Person("i", "s", ("Ann Smith",)), "Ann.Smith"),
        (Person("i", "s", ("ann@example.com",)), "ann"),
        (Person("i", "s", ("<ann>",)), "ann"),
        (Person("i", "s", ("...", "bob")), "bob"),
        (Person("i", "s", ("аnn", "ann2")), "ann2"),  # of two scripts
        (Person("i", "s", ("x" * 300,)), "x" * 61),
        (Person("i", "s", ()), "user-2fe5a85b"),
    ],
)
def test_people_are_called_as_elsewhere_or_like_nobody(person: Person, first: str) -> None:
    names = list(names_for(person))
    assert names[0] == first
    assert names[-1].endswith("-49")
    assert all(len(name) <= 64 for name in names)
    assert urlsplit(names[0]).scheme == ""
