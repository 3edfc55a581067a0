"""MCP servers that are programs run in the sandbox, where they are what they are on a host."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent_core.events.messages import ImageContent
from agent_core.mcp.config import McpServer
from agent_core.mcp.servers import McpServers
from agent_core.runtime.channel.channel import RunnerChannel
from agent_core.runtime.sandbox import Attachment
from agent_core.session.tool_servers import SandboxPrograms
from tests.contract.runner.client import Runner, connect, ports_and_programs
from tests.unit.mcp.conftest import call, fake, is_running, running, tool
from tests.waiting import LIMIT_SECONDS, until


@pytest.fixture
async def channel(runner: Runner) -> AsyncIterator[RunnerChannel]:
    stream = await asyncio.to_thread(connect, runner.socket)
    channel = await RunnerChannel.open(Attachment(*await asyncio.open_unix_connection(sock=stream)))
    yield channel
    await channel.close()


def servers(channel: RunnerChannel, *, is_up: bool = True, **configured: dict[str, Any]) -> McpServers:
    place = SandboxPrograms(ports_and_programs(channel))
    if is_up:
        place.is_up.set()
    return McpServers({name: McpServer.model_validate(one) for name, one in configured.items()}, programs=place)


async def test_they_answer_as_on_a_host_and_each_fails_for_itself(channel: RunnerChannel) -> None:
    good = fake("echo", "picture", "huge", "environment", "die", "die_reading", server_env={"OWN": "y"})
    missing = {"command": "no-such-program"}
    async with running(servers(channel, good=good, missing=missing, broken=fake(exit=3))) as found:
        assert (await call(found, "echo", text="héllo")).text.endswith("héllo")
        assert any(isinstance(part, ImageContent) for part in (await call(found, "picture")).content)
        assert len((await call(found, "huge", n=3_000_000)).text) < 40_000
        assert '"OWN": "y"' in (await call(found, "environment")).text
        problems = found.problems()
        assert "'no-such-program' was not found in the sandbox; use an image that has it" in problems["missing"][0]
        assert "the wheel is gone" in problems["broken"][0]
        died = await call(found, "die")
        assert died.is_error
        assert "unknown whether the call took effect" in died.text
        assert (await call(found, "echo", text="again")).text.endswith("again")
        assert (await call(found, "die_reading")).is_error  # it was called again, and died again


async def test_a_call_that_is_cancelled_leaves_the_others_alone(channel: RunnerChannel) -> None:
    async with running(servers(channel, one=fake("echo", "slow"))) as found:
        slow = tool(found, "slow")
        calling = [asyncio.create_task(slow.acall(slow.action_from_arguments({}))) for _ in range(3)]
        await asyncio.sleep(0.05)
        for one in calling:
            one.cancel()
        await asyncio.wait(calling)
        assert (await call(found, "echo", text="on")).text.endswith("on")


async def test_nothing_of_them_is_left_when_they_are_closed_or_their_server_is_gone(
    channel: RunnerChannel, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    async with running(servers(channel, one=fake("echo", pids=str(pids)))):
        first = [int(word) for word in pids.read_text().split()]
        assert all(map(is_running, first))
    await until(lambda: not any(map(is_running, first)))
    async with running(servers(channel, one=fake("echo", pids=str(pids)))) as found:
        await channel.close()
        every = [int(word) for word in pids.read_text().split()]
        await until(lambda: not any(map(is_running, every)))
        assert "did not do it" in (await call(found, "echo", text="?")).text


async def test_they_wait_for_the_sandbox_and_do_not_hold_up_the_end_of_a_conversation_without_one(
    channel: RunnerChannel,
) -> None:
    found = servers(channel, is_up=False, one=fake("echo", server_timeout=0.2))
    found.start()
    await asyncio.sleep(0.3)  # longer than its own limit, which counts from when it can be started
    assert found.pending == ["one"]
    assert not found.problems()
    async with asyncio.timeout(LIMIT_SECONDS):
        started = asyncio.get_running_loop().time()
        await found.close()
        assert asyncio.get_running_loop().time() - started < 5
