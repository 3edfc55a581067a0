"""Connections to ports as the server has them: over a channel to a real runner."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import AsyncIterator

import pytest

from agent_core.errors import SandboxError
from agent_core.runtime.channel.channel import RunnerChannel
from agent_core.runtime.channel.tunnels import MAX_TUNNELS, PortError
from agent_core.testing.fake_sandbox import FakeRunner
from runtime_images.runner.wire import TUNNEL_WINDOW, encode
from tests.contract.runner.client import PATIENCE_SECONDS, Runner, attached
from tests.listening import listening

MEGABYTE = 1024 * 1024


@pytest.fixture
async def channel(runner: Runner) -> AsyncIterator[RunnerChannel]:
    channel = await attached(runner.socket)
    try:
        yield channel
    finally:
        await channel.close()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def test_bytes_go_both_ways_at_once_and_end_each_by_itself(channel: RunnerChannel) -> None:
    data = os.urandom(3 * MEGABYTE)
    async with listening(echo) as port, asyncio.timeout(PATIENCE_SECONDS):
        connection = await channel.connect({"port": port})

        async def write() -> None:
            await connection.write(data)
            connection.end()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(write())
            got = b""
            while piece := await connection.read():
                got += piece
    assert got == data


async def test_many_connections_at_once_are_kept_apart(channel: RunnerChannel) -> None:
    async def one(port: int, number: int) -> None:
        connection = await channel.connect({"port": port})
        data = bytes([number]) * 50_000
        await connection.write(data)
        connection.end()
        got = b""
        while piece := await connection.read():
            got += piece
        assert got == data

    async with listening(echo) as port, asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as tasks:
        for number in range(200):
            tasks.create_task(one(port, number))


async def test_nothing_listens_and_too_many(channel: RunnerChannel) -> None:
    async with listening(silent) as port:
        pass
    with pytest.raises(PortError) as refused:
        await channel.connect({"port": port})
    assert refused.value.code == "refused"
    async with listening(silent) as port:
        connections = [await channel.connect({"port": port}) for _ in range(MAX_TUNNELS)]
        with pytest.raises(PortError) as busy:
            await channel.connect({"port": port})
        assert busy.value.code == "busy"
        connections[0].close()
        (await channel.connect({"port": port})).close()


async def test_a_gigabyte_that_nobody_reads_costs_no_memory_and_delays_no_request(channel: RunnerChannel) -> None:
    sent = 0

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        block = bytes(MEGABYTE)
        while sent < 1024:
            writer.write(block)
            await writer.drain()
            sent += 1

    async with listening(pour) as port, asyncio.timeout(PATIENCE_SECONDS):
        connection = await channel.connect({"port": port})
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        await connection.read()
        for _ in range(20):
            await channel.request("ping", {})
        assert sent < 64
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024
        connection.close()


async def test_a_port_that_does_not_read_holds_its_writer_up_and_no_other(channel: RunnerChannel) -> None:
    async with listening(silent) as port, listening(echo) as other, asyncio.timeout(PATIENCE_SECONDS):
        stuck = await channel.connect({"port": port})
        writing = asyncio.create_task(stuck.write(bytes(256 * MEGABYTE)))
        connection = await channel.connect({"port": other})
        await connection.write(b"hello")
        assert await connection.read() == b"hello"
        await channel.request("ping", {})
        assert not writing.done()
        stuck.close()
        with pytest.raises(PortError):
            await writing


async def test_when_the_stream_ends_reader_and_writer_are_told(channel: RunnerChannel, runner: Runner) -> None:
    async with listening(silent) as port, asyncio.timeout(PATIENCE_SECONDS):
        connection = await channel.connect({"port": port})
        reading = asyncio.create_task(connection.read())
        writing = asyncio.create_task(connection.write(bytes(256 * MEGABYTE)))
        runner.process.kill()
        for task in (reading, writing):
            with pytest.raises(SandboxError):
                await task
        with pytest.raises(SandboxError):
            await channel.connect({"port": port})


async def test_who_stops_waiting_leaves_nothing_behind(channel: RunnerChannel) -> None:
    ended = asyncio.Event()

    async def watch(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        ended.set()

    async with listening(watch) as port, asyncio.timeout(PATIENCE_SECONDS):
        connection = await channel.connect({"port": port})
        reading = asyncio.create_task(connection.read())
        await asyncio.sleep(0)
        reading.cancel()
        connection.close()
        await ended.wait()
        connection.close()
        with pytest.raises(PortError):
            await connection.read()
    assert len(channel._tunnels._open) == 0


async def test_a_runner_that_sends_more_than_it_was_granted_loses_that_connection_only() -> None:
    runner = FakeRunner(hello={"tunnels": True})
    channel = await RunnerChannel.open(await runner.connect())
    try:
        runner.mute = True
        opening = asyncio.create_task(channel.connect({"port": 80}))
        await asyncio.sleep(0)
        await runner.send_raw(encode({"stream": 1, "opened": True}))
        connection = await opening
        await runner.send_raw(encode({"stream": 1}, bytes(TUNNEL_WINDOW)) + encode({"stream": 1}, b"x"))
        await channel_settled(runner, channel)
        with pytest.raises(PortError, match="more than it was granted"):
            await connection.read()
        assert channel.is_open
    finally:
        await channel.close()
        await runner.close()


async def channel_settled(runner: FakeRunner, channel: RunnerChannel) -> None:
    """Return when everything that was sent has been dealt with."""
    runner.mute = False
    async with asyncio.timeout(PATIENCE_SECONDS):
        await channel.request("ping", {})


async def test_a_runner_of_an_older_release_is_not_asked() -> None:
    runner = FakeRunner()
    channel = await RunnerChannel.open(await runner.connect())
    try:
        with pytest.raises(PortError, match="start it again") as found:
            await channel.connect({"port": 80})
        assert found.value.code == "unsupported"
    finally:
        await channel.close()
        await runner.close()
