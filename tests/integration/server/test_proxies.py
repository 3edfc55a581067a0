"""Real proxies before a real server, configured as in `deploy/`: everything comes through, at once and whole."""

from __future__ import annotations

import asyncio
import os
import re
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import httpx
import pytest
import socketio

from tests.e2e.conftest import free_port
from tests.integration.server.conftest import ServerProcess, create
from tests.proxies import Proxy, caddy, haproxy, nginx

pytestmark = [pytest.mark.proxies]

WAIT_SECONDS = 60.0
TOKEN = "a-token-for-servers-behind-proxies"
PATH = "/drydock"
MEGABYTE = 1024 * 1024

StartProxy = Callable[..., AbstractAsyncContextManager[Proxy]]


@dataclass
class Place:
    """A server behind a proxy."""

    server: ServerProcess
    proxy: Proxy
    trust: ssl.SSLContext

    def client(self, **options: Any) -> httpx.AsyncClient:
        transport = httpx.AsyncHTTPTransport(verify=self.trust, **options)
        headers = {"X-Session-API-Key": TOKEN}
        return httpx.AsyncClient(transport=transport, base_url=self.proxy.url, headers=headers, timeout=WAIT_SECONDS)


@asynccontextmanager
async def behind(start: StartProxy, folder: Path, base_path: str) -> AsyncIterator[Place]:
    ports = free_port(), free_port()
    environment = {
        "DRYDOCK_TOKEN": TOKEN,
        "DRYDOCK_BASE_PATH": base_path,
        "DRYDOCK_TRUSTED_PROXIES": "127.0.0.1",
        "DRYDOCK_PREVIEW_DOMAIN": "none",
    }
    server = ServerProcess(folder / "data", "--sandbox", "unconfined", environment=environment)
    (folder / "proxy").mkdir()
    try:
        await server.start()
        async with start(folder / "proxy", urlsplit(server.url).port, ports) as proxy:
            server.token = TOKEN
            yield Place(server, proxy, ssl.create_default_context(cafile=str(proxy.authority)))
    finally:
        server.token = TOKEN
        await server.close()


@asynccontextmanager
async def following(place: Place, conversation: str, transport: str) -> AsyncIterator[tuple[Any, asyncio.Queue[Any]]]:
    """A client of the sockets that comes through the proxy; what it is told is in the queue."""
    told: asyncio.Queue[Any] = asyncio.Queue()
    address = urlsplit(place.proxy.url)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=place.trust)) as session:
        line = socketio.AsyncClient(reconnection=False, http_session=session)
        line.on("oh_event", told.put)
        query = f"conversation_id={conversation}&latest_event_id=-1&providers_set=&session_api_key={TOKEN}"
        await line.connect(
            f"https://{address.netloc}?{query}",
            transports=[transport],
            socketio_path=f"{address.path}/socket.io",
            wait_timeout=60,
        )
        try:
            yield line, told
        finally:
            await line.disconnect()


async def output_of(line: Any, told: asyncio.Queue[Any], command: str) -> str:
    """What a command of the user prints, as the socket tells it."""
    await line.emit("oh_user_action", {"action": "run", "args": {"command": command}})
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            event = await told.get()
            if event.get("observation") == "run" and event["extras"]["command"] == command:
                return str(event["content"])


@pytest.mark.parametrize(
    ("start", "base_path"),
    [
        pytest.param(nginx, "", id="nginx"),
        pytest.param(caddy, "", id="caddy"),
        pytest.param(partial(nginx, path=PATH, off=True), PATH, id="nginx_that_takes_the_path_off"),
        pytest.param(partial(haproxy, path=PATH), PATH, id="haproxy_that_passes_the_path_on"),
    ],
)
async def test_everything_comes_through(start: StartProxy, base_path: str, tmp_path: Path) -> None:
    async with behind(start, tmp_path, base_path) as place, place.client() as client:
        await the_page_is_whole(client, place)
        conversation = await create(place.server)
        sockets = "websocket", "polling"
        for transport in sockets:
            async with following(place, conversation, transport) as (line, told):
                assert "42\n" in await output_of(line, told, f"echo $((40 + 2)) # {transport}") + "\n"
        await uploads_and_downloads_are_whole(client, conversation)
        if start is not caddy:  # which breaks off what still comes when the answer is there
            await what_is_too_large_is_told(client)
        async with following(place, conversation, "websocket") as (line, told):
            await what_is_told_live_is_told_at_once(client, conversation, line, told)
        await the_proxy_says_for_whom_it_asks(client, place)


async def the_page_is_whole(client: httpx.AsyncClient, place: Place) -> None:
    path = urlsplit(place.proxy.url).path
    page = (await client.get("/")).raise_for_status().text
    assets = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(assets) >= 3
    for asset in assets:
        assert asset.startswith(f"{path}/")
        assert (await client.get(f"https://localhost:{place.proxy.port}{asset}")).is_success


async def uploads_and_downloads_are_whole(client: httpx.AsyncClient, conversation: str) -> None:
    content = os.urandom(18 * MEGABYTE)  # more than any other body may have
    place = f"/api/conversations/{conversation}"
    sent = await client.post(f"{place}/upload-files", files=[("files", ("large.bin", content))])
    assert sent.is_success, sent.text
    async with client.stream("GET", f"{place}/zip-directory") as answer:
        assert answer.is_success
        assert sum([len(piece) async for piece in answer.aiter_bytes()]) > len(content)


async def what_is_too_large_is_told(client: httpx.AsyncClient) -> None:
    too_large = await client.post("/api/settings", content=b"x" * (17 * MEGABYTE))
    assert (too_large.status_code, too_large.json()["detail"][:23]) == (413, "The request is larger t")


async def what_is_told_live_is_told_at_once(
    client: httpx.AsyncClient, conversation: str, line: Any, told: asyncio.Queue[Any]
) -> None:
    async with client.stream("GET", f"/api/conversations/{conversation}/log/live?after=-1") as log:
        lines = log.aiter_lines()
        for word in ("one", "two"):  # the second is asked for when the first has come
            await output_of(line, told, f"echo {word}")
            async with asyncio.timeout(WAIT_SECONDS):
                while f"echo {word}" not in await anext(lines):
                    pass


async def the_proxy_says_for_whom_it_asks(client: httpx.AsyncClient, place: Place) -> None:
    described = (await client.get("/oauth/client.json")).json()
    assert described["client_id"] == f"{place.proxy.url}/oauth/client.json"
    async with place.client(local_address="127.0.0.2") as other:
        lies = {"X-Session-API-Key": "guessed", "X-Forwarded-For": "192.0.2.7", "X-Forwarded-Proto": "http"}
        assert (await other.get("/api/settings", headers=lies)).status_code == 401
    assert "from 127.0.0.2 at" in place.server.printed()
    assert "192.0.2.7" not in place.server.printed()
    if place.proxy.url.endswith(str(place.proxy.port)):
        async with httpx.AsyncClient(trust_env=False) as plain:
            sent_on = await plain.get(f"http://localhost:{place.proxy.plain_port}/settings?a=1")
            assert sent_on.status_code == 308
            assert sent_on.headers["location"].startswith("https://localhost")
