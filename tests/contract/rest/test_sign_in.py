"""Another client's page on a server with a token: a browser signs in once, and needs nothing else then."""

from __future__ import annotations

from collections.abc import AsyncIterator
from http.cookies import SimpleCookie
from pathlib import Path
from urllib.parse import urlencode

import httpx
import pytest

from server.auth.identity import SESSION_SECONDS
from tests.contract.rest.conftest import MakeServer, Server

TOKEN = "the-right-token-of-24-chars"
BROWSER = {"accept": "text/html,*/*;q=0.8", "sec-fetch-mode": "navigate", "sec-fetch-site": "none"}
FORM = {**BROWSER, "content-type": "application/x-www-form-urlencoded"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "page"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<title>another client</title>")
    (folder / "assets" / "app.js").write_text("let a;")
    return folder


@pytest.fixture
async def server(make_server: MakeServer, folder: Path) -> AsyncIterator[Server]:
    async with make_server(page=folder, token=TOKEN) as running:
        yield running


async def sign_in(server: Server, token: str, then: str = "/") -> httpx.Response:
    return await server.post("/sign-in", content=urlencode({"token": token, "then": then}), headers=FORM)


def cookie_of(answer: httpx.Response) -> str:
    """What a browser sends back of it."""
    name, _, rest = answer.headers["set-cookie"].partition("=")
    return f"{name}={rest.partition(';')[0]}"


async def test_a_browser_is_asked_for_the_token_where_the_page_would_be(server: Server) -> None:
    for path in ("/", "/conversations/abc?tab=files", "/sign-in"):
        asked = await server.get(path, headers=BROWSER)
        assert asked.status_code == 401
        assert "Sign in to Drydock" in asked.text
        assert "another client" not in asked.text
        assert asked.headers["cache-control"] == "no-store"
        assert "default-src 'none'" in asked.headers["content-security-policy"]
    assert (await server.get("/assets/app.js", headers={"sec-fetch-mode": "cors", "accept": "*/*"})).text == "let a;"


async def test_who_signs_in_gets_a_cookie_that_opens_page_and_api(server: Server) -> None:
    signed_in = await sign_in(server, TOKEN, "/conversations/abc?tab=files")
    assert (signed_in.status_code, signed_in.headers["location"]) == (303, "/conversations/abc?tab=files")
    morsel = next(iter(SimpleCookie(signed_in.headers["set-cookie"]).values()))
    assert (morsel["httponly"], morsel["samesite"], morsel["path"]) == (True, "Lax", "/")
    assert morsel["max-age"] == str(SESSION_SECONDS)
    assert not morsel["domain"]
    assert TOKEN not in morsel.value
    server.client.cookies.clear()
    known = {"cookie": f"other=1; {cookie_of(signed_in)}"}
    assert (await server.get("/", headers={**BROWSER, **known})).text == "<title>another client</title>"
    assert (await server.get("/sign-in", headers={**BROWSER, **known})).headers["location"] == "/"
    assert (await server.get("/api/options/models", headers=known)).status_code == 200
    assert (await server.get("/api/options/models")).status_code == 401


async def test_a_wrong_token_is_told_and_opens_nothing(server: Server) -> None:
    for wrong in ("the-wrong-token", "", "the-right-tokeñ", "\udcff"):
        answer = await server.post(
            "/sign-in", content=urlencode({"token": wrong, "then": "/a"}, errors="surrogateescape"), headers=FORM
        )
        assert answer.status_code == 401
        assert 'role="alert"' in answer.text
        assert 'value="/a"' in answer.text
        assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "then", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:x", "", "/\r\nset-cookie: a=b"]
)
async def test_signing_in_leads_to_an_address_of_this_server_only(server: Server, then: str) -> None:
    assert (await sign_in(server, TOKEN, then)).headers["location"] == "/"


async def test_what_is_no_form_of_ours_is_refused(server: Server) -> None:
    assert (await server.post("/sign-in", content=b"token=" + b"x" * 20_000, headers=FORM)).status_code == 413
    assert (await server.post("/sign-in", content=b"\xff\x00&&==", headers=FORM)).status_code == 401
    cross = {**FORM, "origin": "https://evil.example", "sec-fetch-site": "cross-site"}
    assert (await server.post("/sign-in", content=f"token={TOKEN}", headers=cross)).status_code == 403


async def test_another_site_cannot_use_the_cookie(server: Server) -> None:
    known = {"cookie": cookie_of(await sign_in(server, TOKEN))}
    server.client.cookies.clear()
    for extra in (
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
    ):
        assert (await server.get("/api/options/models", headers={**known, **extra})).status_code == 403


async def test_the_script_of_the_form_is_the_only_one_that_runs_on_it(server: Server) -> None:
    hostile = await server.get('/"><script>alert(1)</script>?a="><img src=x>', headers=BROWSER)
    assert hostile.status_code == 401
    assert hostile.text.count("<script>") == 1
    assert "<img" not in hostile.text


async def test_signing_out_ends_it_but_not_for_another_site(server: Server) -> None:
    known = {"cookie": cookie_of(await sign_in(server, TOKEN)), **BROWSER}
    server.client.cookies.clear()
    foreign = await server.get("/sign-out", headers={**known, "sec-fetch-site": "cross-site"})
    assert "set-cookie" not in foreign.headers
    ended = await server.get("/sign-out", headers={**known, "sec-fetch-site": "same-origin"})
    assert "Max-Age=0" in ended.headers["set-cookie"]
    assert "Sign in to Drydock" in ended.text


async def test_the_session_lasts_over_a_restart_and_ends_with_a_new_token(
    make_server: MakeServer, folder: Path
) -> None:
    async with make_server(page=folder, token=TOKEN) as server:
        known = {"cookie": cookie_of(await sign_in(server, TOKEN))}
    async with make_server(page=folder, token=TOKEN) as server:
        assert (await server.get("/api/options/models", headers=known)).status_code == 200
    async with make_server(page=folder, token="another-token-of-this-server") as server:
        assert (await server.get("/api/options/models", headers=known)).status_code == 401


async def test_the_own_page_knows_no_cookies(make_server: MakeServer, folder: Path) -> None:
    async with make_server(page=folder, token=TOKEN) as server:
        known = {"cookie": cookie_of(await sign_in(server, TOKEN))}
    async with make_server(token=TOKEN) as server:
        assert (await server.get("/api/options/models", headers=known)).status_code == 401
        assert (await server.post("/sign-in", content=f"token={TOKEN}", headers=FORM)).status_code == 405


async def test_without_a_token_nobody_is_asked(make_server: MakeServer, folder: Path) -> None:
    async with make_server(page=folder) as server:
        assert (await server.get("/", headers=BROWSER)).text == "<title>another client</title>"
