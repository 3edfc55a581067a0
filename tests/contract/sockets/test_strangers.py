"""What a client may have the server keep before it is known, and before it is in a conversation: next to nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from typing import ClassVar

import pytest
from httpx import AsyncClient
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from server.errors import coded_page
from server.http.unfinished import Unfinished
from server.http.uvicorn_protocols import BoundedWebSocketProtocol
from server.sockets.connections import SocketLimits
from tests.contract.sockets.loopback import Client, Loopback, serving, until
from tests.contract.sockets.test_polling import polling

KEY = "a-key-of-more-than-24-characters"
KIBIBYTE = 1024


async def answered_before_its_body(loopback: Loopback, path: str) -> bytes:
    """The status line that a request gets of whose 15 MB no byte is sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", loopback.port)
    try:
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {15 * KIBIBYTE * KIBIBYTE}\r\n\r\n"
        writer.write(head.encode())
        async with asyncio.timeout(60):
            return await reader.readline()
    finally:
        writer.close()


@pytest.mark.parametrize("path", ["/socket.io/", "/socket.io", "/socket.io/anything"])
@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("EIO=4&transport=polling", b"401"),
        ("EIO=4&transport=polling&sid=unknown", b"401"),
        ("EIO=4&transport=polling&sid=unknown&session_api_key=wrong", b"401"),
        (f"EIO=4&transport=polling&sid=unknown&session_api_key={KEY}", b"400"),
        (f"EIO=4&transport=polling&session_api_key={KEY}", b"413"),
    ],
)
async def test_nothing_is_read_for_a_connection_that_is_not_there(path: str, query: str, status: bytes) -> None:
    async with serving(token=KEY) as loopback:
        assert status in await answered_before_its_body(loopback, f"{path}?{query}")


async def test_nothing_is_read_without_the_key_for_one_that_is_there() -> None:
    async with serving(token=KEY) as loopback, Client(transports=("polling",)) as client:
        await client.connect(loopback.url(session_api_key=KEY))
        [transport_id] = loopback.gateway._server.eio.sockets
        address = f"/socket.io/?EIO=4&transport=polling&sid={transport_id}"
        assert b"401" in await answered_before_its_body(loopback, address)
        assert b"401" in await answered_before_its_body(loopback, f"{address}&session_api_key=wrong")


async def test_a_stranger_gets_no_connection_of_the_library() -> None:
    async with serving(token=KEY) as loopback:
        async with loopback.raw("conversation_id=c1&session_api_key=wrong") as socket:
            told = json.loads(str(await socket.recv()).removeprefix("44"))
            assert told == {"message": "invalid_session_api_key", "data": coded_page("invalid_api_key")}
            with pytest.raises(ConnectionClosed):
                await socket.recv()
        assert loopback.gateway._server.eio.sockets == {}


@pytest.mark.parametrize("ws", ["websockets-sansio", BoundedWebSocketProtocol])
async def test_who_has_not_joined_may_say_little_and_who_has_may_say_more(ws: object) -> None:
    async with serving(ws=ws) as loopback:
        async with loopback.raw("conversation_id=c1") as socket:
            await socket.send("4" + "x" * 64 * KIBIBYTE)
            with pytest.raises(ConnectionClosed):
                await socket.recv()
        async with loopback.raw("conversation_id=c1&latest_event_id=-1") as socket:
            await socket.send("40")
            assert str(await socket.recv()).startswith("40")
            text = "x" * 500 * KIBIBYTE
            await socket.send(f'42["oh_user_action",{{"action":"message","args":{{"content":"{text}"}}}}]')
            await until(lambda: loopback.conversations.sent)
            await socket.send("41")
            await until(lambda: loopback.gateway.connection_count == 0)
            await socket.send("4" + "x" * 64 * KIBIBYTE)
            await socket.wait_closed()


async def test_a_message_that_says_it_is_too_large_is_not_even_read() -> None:
    async with serving(ws=BoundedWebSocketProtocol) as loopback:
        reader, writer = await asyncio.open_connection("127.0.0.1", loopback.port)
        try:
            writer.write(
                b"GET /socket.io/?EIO=4&transport=websocket HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\n"
                b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
            )
            await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(1)
            writer.write(b"\x81\xff" + (10 * KIBIBYTE * KIBIBYTE).to_bytes(8) + b"\0\0\0\0")  # only the frame's head
            async with asyncio.timeout(60):
                assert (1009).to_bytes(2) in await reader.read()
        finally:
            writer.close()


class Narrow(Unfinished):
    most_bytes: ClassVar[int] = 300 * KIBIBYTE


@pytest.mark.parametrize("in_frames", [True, False])
async def test_messages_without_an_end_are_bounded_all_together(in_frames: bool) -> None:
    """Each may have 16 MiB, and there may be tens of thousands of them."""
    refused: list[int] = []
    unfinished = Narrow(lambda: refused.append(1))
    go_on = asyncio.Event()
    text = f'42["oh_user_action",{{"action":"message","args":{{"content":"{"x" * 200 * KIBIBYTE}"}}}}]'

    async def begin(socket: ClientConnection) -> asyncio.Task[None]:
        if not in_frames:  # most of one frame
            socket.transport.write(b"\x81\xff" + (len(text)).to_bytes(8) + b"\0\0\0\0" + text[:-1].encode())

        async def frames() -> AsyncIterator[str]:
            yield text[:-1]
            await go_on.wait()
            yield text[-1]

        async def send() -> None:
            if in_frames:
                await socket.send(frames())
            else:
                await go_on.wait()
                socket.transport.write(text[-1].encode())

        return asyncio.create_task(send())

    async with serving(ws=partial(BoundedWebSocketProtocol, unfinished=unfinished)) as loopback:
        query = "conversation_id=c1&latest_event_id=-1"
        async with loopback.raw(query) as first, loopback.raw(query) as second:
            for socket in (first, second):
                await socket.send("40")
                assert str(await socket.recv()).startswith("40")
            sending = await begin(first)
            await until(lambda: unfinished.bytes > 200 * KIBIBYTE)
            cut = await begin(second)
            await second.wait_closed()
            assert refused == [1]
            go_on.set()
            await sending
            await until(lambda: len(loopback.conversations.sent) == 1)
            await asyncio.gather(cut, return_exceptions=True)
        await until(lambda: unfinished.bytes == 0)


async def test_who_polls_and_has_not_joined_may_post_little() -> None:
    often = SocketLimits(ping_interval_seconds=0.5)  # the poll of a client that leaves ends with the next ping
    async with serving(often) as loopback:
        async with Client(transports=("polling",)) as client:
            await client.connect(loopback.url())
            await client.send({"action": "message", "args": {"content": "x" * 500 * KIBIBYTE}})
            await until(lambda: loopback.conversations.sent)
        async with AsyncClient(base_url=f"http://127.0.0.1:{loopback.port}") as http:
            address = "/socket.io/?EIO=4&transport=polling"
            transport_id = json.loads((await http.get(address)).text[1:])["sid"]
            refused = await http.post(f"{address}&sid={transport_id}", content="4" + "x" * 64 * KIBIBYTE)
            assert refused.status_code == 413
            assert f"{64 * KIBIBYTE} bytes" in refused.json()["message"]


async def test_who_polls_and_never_joins_is_forgotten() -> None:
    limits = SocketLimits(handshake_seconds=0.2, ping_timeout_seconds=0.4)
    async with serving(limits) as loopback:
        reader, writer = await asyncio.open_connection("127.0.0.1", loopback.port)
        writer.write(b"GET /socket.io/?EIO=4&transport=polling HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        await reader.readline()
        assert loopback.gateway._server.eio.sockets
        await until(lambda: not loopback.gateway._server.eio.sockets)
        writer.close()


async def test_compression_is_not_spoken() -> None:
    async with serving() as loopback:
        address = f"ws://127.0.0.1:{loopback.port}/socket.io/?EIO=4&transport=websocket"
        async with connect(address, compression="deflate") as socket:
            assert isinstance(socket, ClientConnection)
            assert socket.protocol.extensions == []


async def test_a_body_that_comes_in_many_pieces_costs_no_more_than_its_size() -> None:
    pieces = 20_000

    async def body() -> AsyncIterator[bytes]:
        yield b'42["oh_user_action",{"action":"message","args":{"content":"'
        for _ in range(pieces):
            yield b"x" * 100
        yield b'"}}]'

    async with serving() as loopback, polling(loopback) as poller:
        assert (await poller.post(body())).status_code == 200
        assert len(loopback.conversations.sent) == 1


async def test_frames_that_come_too_fast_wait_and_none_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsed as they come, the pings of one stranger kept everybody else waiting for seven seconds."""
    monkeypatch.setattr(BoundedWebSocketProtocol, "frames_at_once", 100)
    monkeypatch.setattr(BoundedWebSocketProtocol, "frames_per_second", 1000.0)
    async with serving(ws=BoundedWebSocketProtocol) as loopback, loopback.raw("conversation_id=c1") as socket:
        began = asyncio.get_running_loop().time()
        answers = [await socket.ping() for _ in range(3000)]
        async with asyncio.timeout(60):
            await asyncio.gather(*answers)
        last = 1500  # of the smallest frames, in the last piece that is parsed at once
        assert asyncio.get_running_loop().time() - began >= (3000 - 100 - last) / 1000
