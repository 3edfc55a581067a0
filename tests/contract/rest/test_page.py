from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.rest.conftest import MakeServer, Server


@pytest.fixture
async def server(make_server: MakeServer, tmp_path: Path) -> AsyncIterator[Server]:
    folder = tmp_path / "page"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<title>the page</title>")
    (folder / "assets" / "app.js").write_text("let a;")
    (tmp_path / "outside.txt").write_text("kept from you")
    async with make_server(page=folder) as running:
        yield running


@pytest.mark.parametrize("path", ["/", "/conversations/abc", "/settings", "/index.html", "/a/b.c"])
async def test_addresses_of_the_page_give_the_page(server: Server, path: str) -> None:
    response = await server.get(path)
    assert response.status_code == 200
    assert response.text == "<title>the page</title>"
    assert response.headers["cache-control"] == "no-store"


async def test_assets_may_be_kept_and_missing_ones_are_a_404(server: Server) -> None:
    found = await server.get("/assets/app.js")
    assert found.text == "let a;"
    assert found.headers["cache-control"] == "public, max-age=2592000, immutable"
    missing = await server.get("/assets/old.js")
    assert missing.status_code == 404
    assert missing.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", ["/api", "/api/unknown", "/api/conversations/x/y/z"])
async def test_an_unknown_path_of_the_api_is_a_404_in_json(server: Server, path: str) -> None:
    for method in ("GET", "POST", "DELETE"):
        response = await server.client.request(method, path)
        assert response.status_code == 404
        assert response.json()["detail"]


@pytest.mark.parametrize("path", ["/../outside.txt", "/%2e%2e/outside.txt", "/assets/..%2f..%2foutside.txt"])
async def test_nothing_outside_of_the_folder_is_delivered(server: Server, path: str) -> None:
    assert "kept from you" not in (await server.get(path)).text


async def test_a_page_that_is_not_built_says_how_to_build_it(make_server: MakeServer, tmp_path: Path) -> None:
    async with make_server(page=tmp_path / "nothing") as server:
        response = await server.get("/")
        assert response.status_code == 503
        assert "make setup" in response.text


async def test_only_reading_the_page_is_possible(server: Server) -> None:
    assert (await server.post("/settings")).status_code == 405
    assert (await server.client.head("/")).status_code == 200


async def test_pages_of_an_allowed_origin_may_call_the_api(make_server: MakeServer) -> None:
    async with make_server(allowed_origins=("https://tools.example",), token="the-right-token") as server:
        ask = {"origin": "https://tools.example", "access-control-request-method": "GET"}
        preflight = await server.client.options("/api/settings", headers=ask)
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == "https://tools.example"
        foreign = await server.client.options("/api/settings", headers={**ask, "origin": "https://evil.example"})
        assert foreign.status_code == 403
