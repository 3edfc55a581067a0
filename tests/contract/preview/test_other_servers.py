"""Previews of a sandbox that another server has: what a browser sees is the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from server.auth.identity import OneTokenAuthenticator
from server.auth.origin import OriginPolicy
from server.auth.secrets import SecretBox
from server.doors.preview.other_servers import HEADER, PATH, PortDoor
from server.doors.preview.preview import Preview
from server.settings.settings import Settings
from tests.contract.preview.conftest import CONVERSATION, TOKEN, Sandboxes, Site, drydock
from tests.contract.preview.test_websockets import echo, opened, program
from tests.contract.runner.client import PATIENCE_SECONDS
from tests.serving import serving

OPTIONS: dict[str, Any] = {"http": "httptools", "ws_per_message_deflate": False, "server_header": False}


@dataclass
class Pair:
    """A server with the sandbox (`owner`), and another one before which the browser is."""

    owner: Site
    owner_port: int
    other: Site


@pytest.fixture
async def pair(site: Site) -> AsyncIterator[Pair]:
    door = PortDoor(drydock, SecretBox(bytes(32)), site.sandboxes)
    async with AsyncExitStack() as stack:
        owner_port = await stack.enter_async_context(serving(door, lifespan="off", log_config=None, **OPTIONS))

        async def url_of(conversation_id: str) -> str | None:
            return f"http://127.0.0.1:{owner_port}" if conversation_id == CONVERSATION else None

        preview = Preview(
            drydock,
            links=site.links,
            manager=Sandboxes(None, url_of=url_of),
            authenticator=OneTokenAuthenticator(TOKEN),
            origins=OriginPolicy.from_settings(Settings()),
        )
        port = await stack.enter_async_context(serving(preview, lifespan="off", log_config=None, **OPTIONS))
        client = await stack.enter_async_context(httpx.AsyncClient(timeout=PATIENCE_SECONDS))
        other = Site(port, site.links, site.sandboxes, site.runner, client, site.programs)
        yield Pair(site, owner_port, other)


async def test_a_page_is_the_same_from_another_server(pair: Pair) -> None:
    large = b"x" * 3_000_000
    port = await pair.owner.answering(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(large) + large)
    before = pair.owner.sandboxes.touched
    answer = await pair.other.get(port, "/a?b=c")
    assert (answer.status_code, answer.content) == (200, large)
    assert pair.owner.sandboxes.touched > before  # it is in use there, where it would be culled


async def test_what_a_browser_uploads_arrives_whole(pair: Pair) -> None:
    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        body = await reader.readexactly(length)
        text = b"%d" % body.count(b"y")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(text), text))
        await writer.drain()

    port = await pair.owner.serve(count)
    answer = await pair.other.get(port, "/", "POST", content=b"y" * 2_500_000)
    assert (answer.status_code, answer.text) == (200, "2500000")


async def test_a_websocket_goes_through_both_servers(pair: Pair) -> None:
    async with program(echo) as port, opened(pair.other, port, "/live") as browser:
        for message in ("hello", b"\x00" * 200_000):
            await browser.send(message)
            assert await browser.recv() == message


@pytest.mark.parametrize("is_there", [True, False])
async def test_who_has_no_such_port_or_sandbox_says_so(pair: Pair, is_there: bool) -> None:
    async def nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        return

    port = await pair.owner.serve(nothing)
    await pair.owner.programs.aclose()
    headers = await pair.other.enter(port)
    if not is_there:
        pair.owner.sandboxes.found = None
    answer = await pair.other.client.get(f"http://127.0.0.1:{pair.other.port}/", headers=headers)
    assert answer.status_code == (502 if is_there else 503)
    assert ("Open its conversation" in answer.text) is not is_there


@pytest.mark.parametrize("key", [None, bytes(31) + b"\1"])
async def test_a_port_is_opened_only_for_a_server_with_the_same_key(pair: Pair, key: bytes | None) -> None:
    asked = f'["{CONVERSATION}", 1, 1e12]'
    sealed = "v1:x" if key is None else SecretBox(key).encrypt(asked, purpose="port between servers")
    with pytest.raises(InvalidStatus) as refused:
        async with connect(f"ws://127.0.0.1:{pair.owner_port}{PATH}", additional_headers={HEADER: sealed}):
            pass
    assert refused.value.response.status_code == 403
