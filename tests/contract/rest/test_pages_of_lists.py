"""Lists that can be asked for in pages: each entry once, whatever comes and goes between two pages."""

from __future__ import annotations

from typing import Any

import pytest

from server.db.page_ids import page_id
from tests.contract.rest.conftest import Server

LISTS = ["options/models", "options/agents", "options/security-analyzers"]


async def pages(server: Server, path: str) -> list[list[Any]]:
    """All pages, followed by their links as any HTTP client does."""
    found: list[list[Any]] = []
    url: str | None = path
    while url is not None and len(found) < 50:
        response = await server.get(url)
        assert response.status_code == 200, response.text
        body = response.json()
        found.append(body if isinstance(body, list) else next(iter(body.values())))
        url = response.links["next"]["url"] if "link" in response.headers else None
    return found


@pytest.mark.parametrize("name", LISTS)
async def test_the_pages_of_a_list_are_the_list(server: Server, name: str) -> None:
    whole = (await server.get(f"/api/{name}")).json()
    assert await pages(server, f"/api/{name}") == [whole]
    for limit in (1, 2, len(whole), 1000):
        found = await pages(server, f"/api/{name}?limit={limit}")
        assert [one for page in found for one in page] == whole
        assert all(len(page) <= limit for page in found)
        assert found[-1]


async def test_secrets_that_come_and_go_shift_no_page(server: Server) -> None:
    for name in ("B", "D", "F", "H"):
        await server.post("/api/secrets", json={"name": name, "value": "v"})
    first = await server.get("/api/secrets?limit=2")
    assert [one["name"] for one in first.json()["custom_secrets"]] == ["B", "D"]
    await server.client.delete("/api/secrets/D")
    for name in ("A", "C", "G"):
        await server.post("/api/secrets", json={"name": name, "value": "v"})
    rest = await pages(server, first.links["next"]["url"])
    assert [one["name"] for page in rest for one in page] == ["F", "G", "H"]


async def test_the_tools_of_clients_have_pages_in_the_order_in_which_they_were_declared(server: Server) -> None:
    path = f"/api/conversations/{await server.create()}/client-tools"
    declared = [{"name": name, "description": "A tool.", "parameters": {"type": "object"}} for name in ("c", "a", "b")]
    assert (await server.client.put(path, json={"client_tools": declared})).status_code == 200
    found = await pages(server, f"{path}?limit=2")
    assert [[one["name"] for one in page] for page in found] == [["c", "a"], ["b"]]


async def test_an_unchanged_page_still_says_where_the_next_one_is(server: Server) -> None:
    first = await server.get("/api/options/models?limit=1")
    same = await server.get("/api/options/models?limit=1", headers={"If-None-Match": first.headers["etag"]})
    assert same.status_code == 304
    assert same.headers["link"] == first.headers["link"]


@pytest.mark.parametrize("given", ["x", "e30", page_id(1), page_id("a", "b"), "W10", page_id("\ud800"), page_id("a\0")])
async def test_a_page_that_nobody_has_named_is_refused(server: Server, given: str) -> None:
    response = await server.get(f"/api/options/models?page_id={given}")
    assert response.status_code == 400
    assert "page_id is not valid; use the next_page_id" in response.json()["detail"]
