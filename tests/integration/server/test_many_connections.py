"""More connections than a server takes: who comes too late is told, nobody else notices, and it goes on afterwards."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from bench.machine import processor_seconds
from tests.integration.server.conftest import MakeProcess, ServerProcess

LIMIT = 20
LOOK_SECONDS = 1.0
BUSY_SHARE = 0.5
JIFFIES = 100
ESTABLISHED, KEEPALIVE = "01", "02"


def port_of(server: ServerProcess) -> int:
    return int(server.url.rsplit(":", 1)[1])


@asynccontextmanager
async def connections(server: ServerProcess, count: int) -> AsyncIterator[list[asyncio.StreamReader]]:
    """So many connections that say nothing."""
    async with AsyncExitStack() as stack:
        readers = []
        for _ in range(count):
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
            stack.callback(writer.close)
            readers.append(reader)
        yield readers


async def answer(server: ServerProcess) -> bytes:
    """To a request on a connection of its own; nothing where it was cut."""
    async with asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
        try:
            writer.write(b"GET /alive HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()


def timers_of(port: int) -> list[list[str]]:
    """Kind and time of the kernel's timer of each connection to this port."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ours = [line for line in lines if line[1].endswith(f":{port:04X}") and line[3] == ESTABLISHED]
    return [line[5].split(":") for line in ours]


async def until_well(server: ServerProcess) -> None:
    async with asyncio.timeout(60):
        while not (await answer(server)).startswith(b"HTTP/1.1 200"):  # noqa: ASYNC110 - seen only by asking
            await asyncio.sleep(0.05)


async def test_who_comes_beyond_the_limit_is_told_so_and_counted_with_one_line(make_process: MakeProcess) -> None:
    server = await make_process("--sandbox", "unconfined", environment={"DRYDOCK_MAX_CONNECTIONS": str(LIMIT)})
    await until_well(server)
    async with server.client() as client, connections(server, LIMIT - 1):
        assert (await client.get("/alive")).status_code == 200  # its connection is the last one
        for _ in range(3):
            refusal = await answer(server)
            assert refusal.startswith(b"HTTP/1.1 503")
            assert b"retry-after: 5\r\n" in refusal
            assert refusal.endswith(
                b'{"detail": "the server has as many connections as it takes; come back in a few seconds"}'
            )
        async with connections(server, 100) as late:
            assert sum([not await reader.read() for reader in late[-20:]]) == 20  # beyond those told, they are cut
        shown = (await client.get("/metrics")).text
    assert 'drydock_troubles_total{code="too_many_connections"} 103.0' in shown
    assert server.printed().count("[too_many_connections]") == 1
    await until_well(server)


async def test_without_a_descriptor_left_it_waits_and_then_goes_on(make_process: MakeProcess) -> None:
    server = await make_process("--sandbox", "unconfined", environment={"DRYDOCK_MAX_CONNECTIONS": "10000"})
    await until_well(server)
    held = len(os.listdir(f"/proc/{server.pid}/fd"))
    limits = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (held + 10, limits[1]))
    try:
        async with connections(server, 40):
            before = processor_seconds(server.pid)
            await asyncio.sleep(LOOK_SECONDS)
            assert processor_seconds(server.pid) - before < LOOK_SECONDS * BUSY_SHARE
        await until_well(server)
    finally:
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, limits)


async def test_a_client_that_has_gone_without_a_word_is_looked_for(make_process: MakeProcess) -> None:
    server = await make_process("--sandbox", "unconfined")
    async with connections(server, 1):
        timers = timers_of(port_of(server))
        assert timers
        assert all(kind == KEEPALIVE and int(when, 16) <= 60 * JIFFIES for kind, when in timers)
