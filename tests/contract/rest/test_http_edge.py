"""What comes over a connection before any route is asked: bytes that are no request, too many, too few, or too slow."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from agent_core.testing.fake_sandbox import FakeProvider
from server.app import create_app
from server.http.unfinished import TOO_MUCH, Unfinished
from server.http.uvicorn_protocols import BoundedHttpProtocol
from server.session.sandboxes import SandboxSelection
from server.settings.settings import Settings
from tests.serving import serving

LIMIT = 60.0
HOST = b"Host: 127.0.0.1\r\n"
WEBSOCKET = (
    b"Upgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
ALIVE = b"GET /alive HTTP/1.1\r\n" + HOST
JSON = b"POST /api/conversations HTTP/1.1\r\nContent-Type: application/json\r\n" + HOST
CHUNKED = JSON + b"Transfer-Encoding: chunked\r\n\r\n"
WHOLE = 300_000
"""More than the bound on heads, and than what is read at once."""


class Hurried(BoundedHttpProtocol):
    head_seconds: ClassVar[float] = 0.3
    linger_seconds: ClassVar[float] = 0.1


class Wire:
    """One connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        """Send it, as much of it as the server takes."""
        self.writer.write(data)
        try:
            await self.writer.drain()
        except ConnectionError:
            return

    async def answer(self) -> tuple[int, bytes]:
        """The status and the body of the next answer."""
        async with asyncio.timeout(LIMIT):
            head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.partition(b"content-length: ")[2].split(b"\r\n")[0] or b"0")
            return int(head.split()[1]), await self._reader.readexactly(length)

    async def is_over(self) -> bool:
        """Whether the server ends the connection and says no more."""
        async with asyncio.timeout(LIMIT):
            try:
                return await self._reader.read() == b""
            except ConnectionError:
                return True


@asynccontextmanager
async def opened(port: int) -> AsyncIterator[Wire]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Wire(reader, writer)
    finally:
        writer.close()


async def is_well(port: int) -> bool:
    """Whether the server answers others."""
    async with opened(port) as wire:
        await wire.send(ALIVE + b"\r\n")
        return (await wire.answer())[0] == 200


@asynccontextmanager
async def served(folder: Path, protocol: type[BoundedHttpProtocol]) -> AsyncIterator[int]:
    async def choose() -> SandboxSelection:
        return SandboxSelection(FakeProvider(), "fake sandboxes for tests")

    app = create_app(Settings(data_dir=folder, requests_per_second=0), choose=choose)
    async with serving(app, http=protocol, timeout_keep_alive=1) as port:
        yield port


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[int]:
    async with served(tmp_path, BoundedHttpProtocol) as listening:
        yield listening


@pytest.fixture
async def hurried(tmp_path: Path) -> AsyncIterator[int]:
    async with served(tmp_path, Hurried) as listening:
        yield listening


@pytest.mark.parametrize(
    "endless",
    [
        b"GET /" + b"a" * WHOLE,
        ALIVE + b"X: " + b"a" * WHOLE,
        ALIVE + b"X: a\r\n" * (WHOLE // 6),
        CHUNKED + b"2;" + b"a" * WHOLE,
        CHUNKED + b"2\r\n{}\r\n0\r\n" + b"a: b\r\n" * (WHOLE // 6),
    ],
    ids=["address", "header", "headers", "extension of a chunk", "trailers"],
)
async def test_a_head_without_an_end_is_a_431_and_the_connection_ends(port: int, endless: bytes) -> None:
    async with opened(port) as wire:
        await wire.send(endless)
        status, body = await wire.answer()
        assert status == 431
        assert json.loads(body) == {"detail": "the head of the request is larger than 65536 bytes; send less in it"}
        assert await wire.is_over()
    assert await is_well(port)


class Narrow(Unfinished):
    most_bytes: ClassVar[int] = 50_000


async def test_heads_without_an_end_are_bounded_all_together_and_small_ones_are_taken(tmp_path: Path) -> None:
    refused: list[int] = []
    unfinished = Narrow(lambda: refused.append(1))

    class Protocol(BoundedHttpProtocol):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, unfinished=unfinished, **options)

    begun = ALIVE + b"X: " + b"a" * 40_000
    async with served(tmp_path, Protocol) as port:
        async with opened(port) as first, opened(port) as second, opened(port) as third:
            await first.send(begun)
            await _until(lambda: unfinished.bytes > 40_000)
            await second.send(begun)
            status, body = await second.answer()
            assert (status, json.loads(body)) == (503, {"detail": TOO_MUCH})
            assert await second.is_over()
            await third.send(ALIVE + b"X: " + b"a" * 7_000)  # and its end later
            assert await is_well(port)
            await third.send(b"\r\n\r\n")
            assert (await third.answer())[0] == 200
            await first.send(b"\r\n\r\n")
            assert (await first.answer())[0] == 200
            await first.send(begun)
            await _until(lambda: unfinished.bytes > 40_000)
        await _until(lambda: unfinished.bytes == 0)
    assert refused  # once for each piece of it that came


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT):
        while not condition():  # noqa: ASYNC110 - a protocol tells nobody
            await asyncio.sleep(0.005)


async def test_a_head_below_the_bound_is_answered(port: int) -> None:
    async with opened(port) as wire:
        for _ in range(3):
            await wire.send(ALIVE + b"X: " + b"a" * 60_000 + b"\r\n\r\n")
            assert (await wire.answer())[0] == 200


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 200,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"NOSUCH /alive HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /\xff HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET http://127.0.0.1 HTTP/1.1\r\n" + HOST + b"\r\n",
        b"CONNECT a.example:443 HTTP/1.1\r\n" + HOST + b"\r\n",
        ALIVE + b"X: a\0b\r\n\r\n",
        JSON + b"Content-Length: many\r\n\r\n{}",
        JSON + b"Content-Length: -1\r\n\r\n{}",
        JSON + b"Content-Length: +2\r\n\r\n{}",
        JSON + b"Content-Length: 99999999999999999999999\r\n\r\n{}",
        JSON + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        JSON + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        CHUNKED + b"FFFFFFFFFFFFFFFFF\r\n{}",
        CHUNKED + b"two\r\n{}",
    ],
)
async def test_what_is_no_request_is_a_400_and_the_connection_ends(
    port: int, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(port) as wire:
        await wire.send(garbage)
        status, body = await wire.answer()
        assert status == 400
        assert "HTTP/1.1" in json.loads(body)["detail"]
        assert await wire.is_over()
    assert await is_well(port)
    assert not caplog.records


@pytest.mark.parametrize("begun", [b"", b"\r\n", b"GET", ALIVE, ALIVE + b"X: a", WEBSOCKET])
@pytest.mark.parametrize("is_first", [True, False])
async def test_a_head_that_does_not_come_to_its_end_is_not_waited_for(
    hurried: int, begun: bytes, *, is_first: bool
) -> None:
    async with opened(hurried) as wire:
        if not is_first:
            await wire.send(ALIVE + b"\r\n")
            assert (await wire.answer())[0] == 200
        await wire.send(begun)
        if begun.strip() and begun != WEBSOCKET:
            status, body = await wire.answer()
            assert (status, json.loads(body)["detail"][:31]) == (408, "the head of the request did not")
        elif begun:
            await wire.answer()
        assert await wire.is_over()
    assert await is_well(hurried)


async def test_a_head_that_comes_slowly_does_not_get_more_time(hurried: int) -> None:
    async with opened(hurried) as wire:
        await wire.send(ALIVE)

        async def drip() -> None:
            while True:
                await wire.send(b"X: a\r\n")
                await asyncio.sleep(0.01)  # as fast as a client of this kind

        dripping = asyncio.create_task(drip())
        try:
            assert (await wire.answer())[0] == 408
        finally:
            dripping.cancel()
            await asyncio.wait([dripping])


async def test_the_time_for_a_head_does_not_count_for_bodies_and_sockets(hurried: int) -> None:
    body = b'{"language": "de"}'
    head = b"POST /api/settings HTTP/1.1\r\nContent-Type: application/json\r\n" + HOST
    async with opened(hurried) as upload, opened(hurried) as socket:
        await upload.send(head + b"Content-Length: %d\r\n\r\n" % len(body) + body[:5])
        await socket.send(b"GET /socket.io/?EIO=4&transport=websocket HTTP/1.1\r\n" + HOST + WEBSOCKET + b"\r\n")
        assert (await socket.answer())[0] == 101
        async with opened(hurried) as other:
            await other.send(ALIVE)
            assert (await other.answer())[0] == 408, "so long it has been"
        await upload.send(body[5:])
        assert (await upload.answer())[0] == 200
        await socket.send(b"\x89\x80\0\0\0\0")
        assert not socket.writer.is_closing()


async def test_requests_behind_each_other_are_answered_in_their_order(port: int) -> None:
    paths = [b"/alive", b"/health", b"/api/nothing"]
    async with opened(port) as wire:
        asked = [b"GET " + paths[number % 3] + b" HTTP/1.1\r\n" + HOST + b"\r\n" for number in range(1500)]
        sending = asyncio.create_task(wire.send(b"".join(asked)))
        for number in range(1500):
            assert (await wire.answer())[0] == (200, 200, 404)[number % 3]
        await sending


async def test_an_offer_of_http_2_is_passed_over_and_the_connection_goes_on(port: int) -> None:
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
    body = b'{"language": "de"}'
    length = b"Content-Type: application/json\r\nContent-Length: %d\r\n" % len(body)
    async with opened(port) as wire:
        for _ in range(2):
            await wire.send(b"POST /api/settings HTTP/1.1\r\n" + HOST + offer + length + b"\r\n" + body)
            assert await wire.answer() == (200, b'{"message":"Settings stored"}')
            await wire.send(ALIVE + offer + b"\r\n")
            assert (await wire.answer())[0] == 200


async def test_a_protocol_that_is_not_spoken_here_is_not_waited_for(port: int) -> None:
    async with opened(port) as wire:
        await wire.send(ALIVE + b"Connection: Upgrade\r\nUpgrade: other\r\n\r\n")
        assert (await wire.answer())[0] == 200
        assert await wire.is_over()


@pytest.mark.parametrize(
    "head",
    [
        b"GET /socket.io/?EIO=4&x=" + b"a" * 9000 + b" HTTP/1.1\r\n" + HOST + WEBSOCKET,
        b"GET /socket.io/?EIO=4 HTTP/1.1\r\nCookie: " + b"a" * 9000 + b"\r\n" + HOST + WEBSOCKET,
        b"GET /socket.io/?EIO=4 HTTP/1.1\r\n" + b"X: a\r\n" * 200 + HOST + WEBSOCKET,
        b"POST /socket.io/?EIO=4 HTTP/1.1\r\nContent-Length: 2\r\n" + HOST + WEBSOCKET,
    ],
    ids=["address", "header", "headers", "body"],
)
async def test_a_handshake_that_the_library_would_be_silent_about_is_refused(port: int, head: bytes) -> None:
    async with opened(port) as wire:
        await wire.send(head + b"\r\n")
        status, body = await wire.answer()
        assert status == 400
        assert "this is no handshake of a WebSocket" in json.loads(body)["detail"]
        assert await wire.is_over()


@pytest.mark.parametrize("path", [b"/", b"/api/settings", b"/sockets/events/c1", b"/alive"])
async def test_a_websocket_where_there_is_none_is_refused(
    port: int, path: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(port) as wire:
        await wire.send(b"GET " + path + b" HTTP/1.1\r\n" + HOST + WEBSOCKET + b"\r\n")
        assert (await wire.answer())[0] == 403
    assert not [record for record in caplog.records if record.levelname in {"ERROR", "WARNING"}]
