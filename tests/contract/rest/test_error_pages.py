"""Where a server says what its error codes mean: for everybody who meets one, wherever the server stands."""

from __future__ import annotations

import re

import httpx
import pytest
from fastapi import FastAPI

from agent_core.errors import EventStoreError, SandboxError, ToolError
from server.errors import ReplyError, install_error_replies
from server.http.error_pages import error_sections
from tests.contract.rest.conftest import MakeServer, Server

TOKEN = "a-token-of-these-tests-alone"


@pytest.mark.parametrize("base", ["", "/drydock"])
async def test_the_list_leads_to_a_page_for_each_code_without_a_token(make_server: MakeServer, base: str) -> None:
    async with make_server(token=TOKEN, base_path=base) as server:
        listed = await server.get(f"{base}/errors")
        assert (listed.status_code, listed.headers["content-type"]) == (200, "text/html; charset=utf-8")
        links = re.findall(r'href="([^"]+)"', listed.text)
        assert set(links) >= {f"{base}/errors/{one.code}" for one in error_sections()}
        for link in links:
            page = await server.get(link)
            assert page.status_code == 200, link
            assert "What to do:" in page.text
            assert not re.search(r"\]\(|\*\*|`|<script", page.text), link
            for further in re.findall(r'href="([^"]+)"', page.text):
                assert further in {f"{base}/errors", *links}


async def test_an_id_that_the_page_shows_leads_to_all_that_it_may_be(server: Server) -> None:
    page = await server.get("/errors/STATUS$ERROR_STORAGE")
    assert 'id="disk_full"' in page.text
    assert 'id="storage_unavailable"' in page.text


async def test_an_unknown_code_is_told_so_and_is_only_text(server: Server) -> None:
    page = await server.get("/errors/<script>alert(1)</script>".replace("/script", "script"))
    assert page.status_code == 404
    assert "&lt;script&gt;" in page.text
    assert "<script" not in page.text


@pytest.mark.parametrize("base", ["", "/drydock"])
async def test_an_error_says_its_code_and_where_its_page_is(make_server: MakeServer, base: str) -> None:
    async with make_server(base_path=base) as server:
        sent = {"json": {"initial_user_msg": "hello"}, "headers": {"Idempotency-Key": "one"}}
        assert (await server.post("/api/conversations", **sent)).status_code == 200
        sent["json"] = {"initial_user_msg": "another"}
        refused = (await server.post("/api/conversations", **sent)).json()
        assert (refused["code"], refused["docs"]) == ("key_reused", f"{base}/errors/key_reused")
        unknown = (await server.get("/v1/nothing")).json()["error"]
        assert (unknown["code"], unknown["docs"]) == ("unknown_url", f"{base}/errors/unknown_url")
        for body in (refused, unknown):
            assert f'<h1 id="{body["code"]}">' in (await server.get(body["docs"])).text


async def test_who_is_not_let_in_is_told_the_page_as_well(make_server: MakeServer) -> None:
    async with make_server(token=TOKEN, base_path="/drydock", max_request_bytes=1024) as server:
        key = {"X-Session-API-Key": TOKEN}
        for headers, size, status, code in (
            ({}, 1, 401, "invalid_api_key"),
            ({"Origin": "http://elsewhere.example"} | key, 1, 403, "origin_not_allowed"),
            (key, 2000, 413, "request_too_large"),
        ):
            refused = await server.post("/api/conversations", headers=headers, content=b" " * size)
            told = refused.json()
            assert (refused.status_code, told["code"]) == (status, code)
            assert f'<h1 id="{code}">' in (await server.get(told["docs"])).text


async def test_what_fails_below_a_route_gives_its_code_to_the_answer() -> None:
    """Whatever form the route gives to its errors; a fault of the caller alone has none."""
    api = FastAPI()
    install_error_replies(api, "/drydock")

    @api.get("/{kind}")
    async def fail(kind: str) -> None:
        causes = {
            "sandbox": SandboxError("It stands.", code="stalled"),
            "store": EventStoreError("Full.", code="disk_full"),
        }
        raise ReplyError(500, {"error": "no"}) from causes.get(kind, ToolError("wrong"))

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=api), base_url="http://test") as client:
        told = [(await client.get(f"/{kind}")).json() for kind in ("sandbox", "store", "caller")]
    assert told == [
        {"error": "no", "code": "stalled", "docs": "/drydock/errors/stalled"},
        {"error": "no", "code": "disk_full", "docs": "/drydock/errors/disk_full"},
        {"error": "no"},
    ]
