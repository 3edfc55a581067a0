"""WebSockets through a preview: messages of every kind both ways, refusals, and ends on either side."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.http11 import Request, Response

from server.doors.preview.websocket_proxy import MAX_MESSAGE_BYTES
from tests.contract.preview.conftest import Site
from tests.contract.runner.client import PATIENCE_SECONDS

Program = Callable[[ServerConnection], Awaitable[None]]


@asynccontextmanager
async def program(handler: Program, **options: Any) -> AsyncIterator[int]:
    async with serve(handler, "127.0.0.1", 0, max_size=None, **options) as server:
        port: int = next(iter(server.sockets)).getsockname()[1]
        yield port


@asynccontextmanager
async def opened(site: Site, port: int, path: str = "/", **options: Any) -> AsyncIterator[ClientConnection]:
    cookie = (await site.enter(port))["cookie"]
    headers = {"Cookie": cookie, **options.pop("headers", {})}
    async with asyncio.timeout(PATIENCE_SECONDS), connect(
        f"ws://{site.host_of(port)}{path}", host="127.0.0.1", port=site.port, additional_headers=headers,
        max_size=None, **options,
    ) as client:  # fmt: skip
        yield client


async def echo(connection: ServerConnection) -> None:
    async for message in connection:
        await connection.send(message)


async def test_text_and_binary_of_any_size_go_both_ways(site: Site) -> None:
    messages: list[str | bytes] = ["", "é☃\0", b"", bytes(range(256)), os.urandom(1_000_000), "x" * 300_000]
    async with program(echo) as port, opened(site, port) as client:
        for message in messages:
            before = site.sandboxes.touched
            await client.send(message)
            assert await client.recv() == message
            assert site.sandboxes.touched >= before + 2, "each way keeps the conversation awake"
        await client.send(["in ", "three ", "parts"])
        assert await client.recv() == "in three parts"
        sending = asyncio.create_task(client.send(b"a"))
        waiter = await client.ping()
        await waiter
        await sending


async def test_a_program_may_send_parts_and_pings(site: Site) -> None:
    async def talk(connection: ServerConnection) -> None:
        await connection.send([b"one ", b"two ", b"three"])  # together with the end of the handshake
        await (await connection.ping())
        await connection.send("pinged")
        await connection.close(4321, "enough")

    async with program(talk) as port, opened(site, port) as client:
        assert await client.recv() == b"one two three"
        assert await client.recv() == "pinged"
        with pytest.raises(ConnectionClosed):
            await client.recv()
        assert (client.close_code, client.close_reason) == (4321, "enough")


async def test_a_browsers_close_reaches_the_program_with_its_code(site: Site) -> None:
    ended: asyncio.Future[tuple[int | None, str | None]] = asyncio.get_running_loop().create_future()

    async def watch(connection: ServerConnection) -> None:
        await connection.wait_closed()
        ended.set_result((connection.close_code, connection.close_reason))

    async with program(watch) as port, opened(site, port) as client:
        await client.close(4000, "bye")
        assert await ended == (4000, "bye")


async def test_path_subprotocol_and_headers_are_passed_on_but_no_pass_and_no_extension(site: Site) -> None:
    seen: list[Request] = []

    def look(connection: ServerConnection, request: Request) -> None:
        seen.append(request)

    async with program(echo, process_request=look, subprotocols=["vite-hmr"]) as port:
        origin = f"http://{site.host_of(port)}"
        async with opened(
            site,
            port,
            "/a%20b?c=1",
            subprotocols=["other", "vite-hmr"],
            origin=origin,
            headers={"X-Mine": "1", "Remote-User": "ann"},
        ) as client:
            assert client.subprotocol == "vite-hmr"
    (request,) = seen
    assert request.path == "/a%20b?c=1"
    assert request.headers["host"] == f"localhost:{port}"
    assert request.headers["origin"] == f"http://localhost:{port}"
    assert request.headers["x-mine"] == "1"
    assert "remote-user" not in request.headers
    assert "cookie" not in request.headers
    assert "sec-websocket-extensions" not in request.headers
    assert len(request.headers.get_all("sec-websocket-key")) == 1


async def test_who_may_not_look_may_not_connect(site: Site) -> None:
    async def never(connection: ServerConnection) -> None:
        raise AssertionError("nobody may come here")

    async with program(never) as port:
        for headers, origin in (({"Cookie": "a=1"}, None), ({}, "http://evil.example"), ({}, f"http://{site.host}")):
            with pytest.raises(InvalidStatus) as refused:
                async with opened(site, port, headers=headers, origin=origin):
                    pass
            assert refused.value.response.status_code == 403


async def test_a_programs_refusal_comes_as_it_is(site: Site) -> None:
    def refuse(connection: ServerConnection, request: Request) -> Response:
        return connection.respond(418, "not here")

    async with program(echo, process_request=refuse) as port:
        with pytest.raises(InvalidStatus) as refused:
            async with opened(site, port):
                pass
        assert refused.value.response.status_code == 418
        assert bytes(refused.value.response.body or b"") == b"not here"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n",
        b"garbage\r\n\r\n",
        b"",
    ],
)
async def test_what_is_no_websocket_is_told(site: Site, answer: bytes) -> None:
    port = await site.answering(answer)
    with pytest.raises(InvalidStatus) as refused:
        async with opened(site, port):
            pass
    assert refused.value.response.status_code == 502


async def test_a_program_that_breaks_off_or_breaks_the_rules_ends_it(site: Site) -> None:
    async def vanish(connection: ServerConnection) -> None:
        connection.transport.abort()

    async def nonsense(connection: ServerConnection) -> None:
        connection.transport.write(b"\xff\xff\xff\xff")
        await connection.wait_closed()

    async def latin(connection: ServerConnection) -> None:
        connection.transport.write(b"\x81\x01\xe9")
        await connection.wait_closed()

    async def endless(connection: ServerConnection) -> None:
        await connection.send(bytes(MAX_MESSAGE_BYTES + 1))
        await connection.wait_closed()

    for handler, codes in ((vanish, {1011}), (nonsense, {1011}), (latin, {1007}), (endless, {1009, 1011})):
        async with program(handler) as port, opened(site, port) as client:
            with pytest.raises(ConnectionClosed):
                await client.recv()
            assert client.close_code in codes, handler


async def test_when_the_sandbox_goes_the_browser_is_told(site: Site) -> None:
    async with program(echo) as port, opened(site, port) as client:
        await client.send("a")
        assert await client.recv() == "a"
        site.runner.process.kill()
        site.runner.process.wait(PATIENCE_SECONDS)
        with pytest.raises(ConnectionClosed):
            await client.recv()
        assert client.close_code == 1011


async def test_a_browser_that_does_not_read_holds_the_program_up(site: Site) -> None:
    sent = 0

    async def pour(connection: ServerConnection) -> None:
        nonlocal sent
        while True:
            await connection.send(bytes(1_000_000))
            sent += 1

    async with program(pour) as port, opened(site, port, max_queue=1) as client:
        await client.recv()
        before = -1
        while sent != before:  # until nothing flows any more
            before = sent
            for _ in range(5):
                await site.ask(f"http://{site.host}/")
        assert sent < 64
        client.transport.abort()
