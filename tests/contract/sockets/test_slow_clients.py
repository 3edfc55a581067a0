"""A client that reads slowly, or not at all, costs bounded memory and delays nobody."""

from __future__ import annotations

import asyncio
import gc
import socket
import time
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from websockets.asyncio.client import ClientConnection

from agent_core.events.llm_events import MessageEvent, ObservationEvent
from agent_core.events.messages import Message
from agent_core.events.serialization import AnyEvent
from agent_core.tools.terminal import TerminalObservation
from server.sockets.connections import SocketLimits
from server.sockets.outlet import Outlet
from tests.contract.sockets.loopback import Loopback, packet, serving, until

KIBIBYTE = 1024
EVENT_BYTES = 20 * KIBIBYTE
EVENTS = 1500
BUFFER = 128 * KIBIBYTE
SMALL_SOCKETS = 16 * KIBIBYTE


def output(i: int) -> AnyEvent:
    result = TerminalObservation.from_text(f"{i:06d}" + "x" * EVENT_BYTES)
    return ObservationEvent(source="agent", cause=0, observation=result, tool_name="terminal")


async def lazy_socket(port: int) -> socket.socket:
    """A connection with a small receive buffer, so that what is not read stays with the server."""
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_SOCKETS)
    raw.setblocking(False)
    await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", port))
    return raw


@asynccontextmanager
async def slow_client(
    loopback: Loopback, query: str = "conversation_id=c1&latest_event_id=-1"
) -> AsyncIterator[ClientConnection]:
    """A client of all events that reads none by itself."""
    raw = await lazy_socket(loopback.port)
    async with loopback.raw(query, sock=raw, max_queue=1, close_timeout=0.2) as slow:
        await slow.send("40")
        yield slow


def outlets() -> list[Outlet]:
    gc.collect()
    return [thing for thing in gc.get_objects() if type(thing) is Outlet]


def standstill(loopback: Loopback) -> Callable[[], bool]:
    """Whether what waits for the clients has not changed for a good while."""
    seen: list[int] = []

    def is_still() -> bool:
        seen.append(loopback.gateway.waiting_bytes)
        return seen[-1] > 0 and len(seen) > 40 and len(set(seen[-40:])) == 1

    return is_still


async def fill(loopback: Loopback) -> None:
    stream = loopback.conversations.known["c1"].stream
    assert stream is not None
    for start in range(0, EVENTS, 100):
        await stream.add_events([output(i) for i in range(start, start + 100)])


async def test_what_waits_for_a_client_is_bounded_and_it_gets_everything_once_it_reads() -> None:
    async with serving(SocketLimits(max_buffer_bytes=BUFFER)) as loopback:
        await fill(loopback)
        async with slow_client(loopback) as slow:
            await until(standstill(loopback))
            highest = 0
            async with loopback.client(after=EVENTS - 1) as other:
                stream = loopback.conversations.known["c1"].stream
                assert stream is not None
                for i in range(20):
                    sent = time.perf_counter()
                    stored = await stream.add_event(
                        MessageEvent(source="user", llm_message=Message.user(f"not delayed {i}"))
                    )
                    await other.until_id(stored.id)
                    assert time.perf_counter() - sent < 20
                    highest = max(highest, loopback.gateway.waiting_bytes)
            assert highest <= BUFFER + 2 * EVENT_BYTES
            await slow.recv()
            seen = [packet(await slow.recv())["id"] for _ in range(EVENTS + 20)]
            assert seen == list(range(EVENTS + 20))


async def test_a_client_that_does_not_read_is_disconnected_and_forgotten() -> None:
    async with serving(SocketLimits(max_buffer_bytes=BUFFER, stall_seconds=0.5)) as loopback:
        await fill(loopback)
        conversation = loopback.conversations.known["c1"]
        raw = await lazy_socket(loopback.port)
        loop = asyncio.get_running_loop()
        try:
            query = "EIO=4&transport=websocket&conversation_id=c1&latest_event_id=-1"
            upgrade = (
                f"GET /socket.io/?{query} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
            )
            connect = b"\x81\x82\x00\x00\x00\x0040"  # a text frame, masked with zeros
            await loop.sock_sendall(raw, upgrade.encode())
            await loop.sock_recv(raw, 1000)
            await loop.sock_sendall(raw, connect)
            await until(lambda: conversation.connections)
            [outlet] = [weakref.ref(found) for found in outlets() if not found.closed]
            await until(lambda: not conversation.connections)
            assert loopback.gateway.connection_count == 0
            await until(lambda: gc.collect() >= 0 and outlet() is None)
        finally:
            raw.close()


async def test_a_client_that_reads_a_little_now_and_then_stays() -> None:
    async with serving(SocketLimits(max_buffer_bytes=BUFFER, stall_seconds=1.2)) as loopback:
        await fill(loopback)
        async with slow_client(loopback) as slow:
            began = time.monotonic()
            while time.monotonic() - began < 2.5:
                for _ in range(15):
                    await slow.recv()
                await asyncio.sleep(0.1)
            assert loopback.gateway.connection_count == 1
