"""A server below a path of its proxy's (`base_path`): what comes in with it or without, and what goes out below it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from agent_core.mcp.grants import sign_in_id
from server.http.page import CHECKOUT_PAGE
from server.settings.loading import load_settings
from tests.authorization_server import guarded_tools
from tests.contract.rest.conftest import MakeServer, Server
from tests.contract.rest.test_mcp_sign_ins import allow, begin, configure
from tests.contract.rest.test_ports import running

BASE = "/tools/drydock"
TOKEN = "the-right-token-of-24-chars"


@pytest.fixture
async def server(make_server: MakeServer) -> AsyncIterator[Server]:
    async with make_server(base_path=f"{BASE}/", allowed_hosts=["drydock.example"]) as running_server:
        yield running_server


@pytest.mark.parametrize("before", [BASE, ""], ids=["passed_on", "taken_off"])
async def test_all_that_a_client_is_told_lies_below_it(server: Server, before: str) -> None:
    """Whether its proxy passes the path on or takes it off."""
    conversation_id = await running(server)
    await server.create()
    headers = {"host": "drydock.example"}
    info = (await server.get(f"{before}/api/conversations/{conversation_id}")).json()
    assert info["url"] == f"{BASE}/api/conversations/{conversation_id}"
    listed = (await server.get(f"{before}/api/conversations?limit=1")).json()["results"]
    assert listed[0]["url"].startswith(f"{BASE}/api/")
    ports = await server.get(f"{before}/api/conversations/{conversation_id}/ports?limit=1", headers=headers)
    preview = urlsplit(ports.json()["ports"][0]["url"])
    assert preview.path.startswith(f"{BASE}/preview/")
    opened = await server.get(preview.path.replace(BASE, before, 1), headers=headers)
    assert "sandbox" in opened.headers["content-security-policy"]
    assert ports.links["next"]["url"].startswith(f"{BASE}/api/")
    document = (await server.get(f"{before}/openapi.json")).json()
    assert document["servers"] == [{"url": BASE}]
    assert 'href="openapi.json"' in (await server.get(f"{before}/docs")).text
    for path in ("/health", "/server_info", "/v1/models", "/socket.io/?EIO=4&transport=polling"):
        assert (await server.get(before + path)).is_success, path


@pytest.mark.parametrize("path", [BASE, f"{BASE}/", f"{BASE}/conversations/abc", "/", "/settings"])
async def test_its_page_finds_everything_below_it(server: Server, path: str) -> None:
    if not CHECKOUT_PAGE.is_dir():
        pytest.fail("the page is not built: make setup")
    page = (await server.get(path)).raise_for_status()
    assert f'<meta name="base-path" content="{BASE}/" />' in page.text
    addresses = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(addresses) >= 3
    for address in addresses:
        assert address.startswith(f"{BASE}/")
        assert (await server.get(address)).is_success
        assert (await server.get(address.removeprefix(BASE))).is_success
    again = await server.get(path, headers={"if-none-match": page.headers["etag"]})
    assert again.status_code == 304


async def test_whoever_signs_in_with_an_mcp_server_comes_back_below_it(server: Server) -> None:
    async with guarded_tools(consent="at once") as tools:
        await configure(server, tools)
        begun = await begin(server, sign_in_id(tools.url))
        assert f"; Path={BASE}/oauth/callback;" in begun.headers["set-cookie"]
        back = await allow(begun.json()["url"])
        assert back.startswith(f"http://127.0.0.1:3000{BASE}/oauth/callback?")
        assert (await server.get(back)).headers["location"] == f"{BASE}/settings"
        assert f'href="{BASE}/settings"' in (await server.get(back)).text  # a second time it is over
        client = (await server.get(f"{BASE}/oauth/client.json")).json()
        assert client["client_id"] == f"http://127.0.0.1:3000{BASE}/oauth/client.json"
        assert client["redirect_uris"] == [f"http://127.0.0.1:3000{BASE}/oauth/callback"]


async def test_a_page_is_another_one_when_the_path_changes(make_server: MakeServer) -> None:
    tags = []
    for base in ("", "/a", "/b"):
        async with make_server(base_path=base) as server:
            answer = await server.get("/")
            tags.append(answer.headers["etag"])
            assert f'content="{base}/"' in answer.text
    assert len(set(tags)) == 3


async def test_what_only_begins_like_it_is_not_below_it(server: Server) -> None:
    for path in (f"{BASE}s/api/conversations", f"{BASE}.old/api/conversations", "/%74ools/drydock/api/conversations"):
        answer = await server.get(path)
        assert answer.headers["content-type"].startswith("text/html"), path  # an address of the page, as any other
    assert (await server.get(f"{BASE}{BASE}/api/conversations")).headers["content-type"].startswith("text/html")


async def test_a_sign_in_leads_back_below_it_and_its_cookie_is_for_there_alone(
    make_server: MakeServer, tmp_path: Path
) -> None:
    (tmp_path / "index.html").write_text("<title>theirs</title>")
    async with make_server(base_path=BASE, page=tmp_path, token=TOKEN) as server:
        navigation = {"sec-fetch-mode": "navigate"}
        form = await server.get(f"{BASE}/settings?a=1", headers=navigation)
        assert f'action="{BASE}/sign-in"' in form.text
        assert 'name="then" value="/settings?a=1"' in form.text
        signed_in = await server.post(f"{BASE}/sign-in", data={"token": TOKEN, "then": "/settings?a=1"})
        assert signed_in.headers["location"] == f"{BASE}/settings?a=1"
        assert f"; Path={BASE};" in signed_in.headers["set-cookie"]
        cookie = {"cookie": signed_in.headers["set-cookie"].split(";")[0], **navigation}
        assert (await server.get(f"{BASE}/sign-in", headers=cookie)).headers["location"] == f"{BASE}/"
        assert "theirs" in (await server.get(f"{BASE}/settings", headers=cookie)).text


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("drydock", "write it as /drydock"),
        ("/a b", "write it as /drydock"),
        ("/../etc", "write it as /drydock"),
        ("/a//b", "write it as /drydock"),
        ("/dr%79dock", "write it as /drydock"),
        ("/api", "/api is a path of the server itself"),
        ("/preview/x", "/preview is a path of the server itself"),
    ],
)
def test_a_path_that_cannot_be_one_is_refused(given: str, told: str) -> None:
    with pytest.raises(Exception, match=f"DRYDOCK_BASE_PATH.*{told}"):
        load_settings({}, {"DRYDOCK_BASE_PATH": given})
