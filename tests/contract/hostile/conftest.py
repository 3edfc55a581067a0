"""A sandbox whose runner lies, behind the server's own code and a real byte stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from agent_core.runtime.channel.channel import ChannelLimits
from agent_core.runtime.channel.connection import ConnectionLimits, SandboxConnection
from agent_core.runtime.sandbox import SandboxSpec
from agent_core.testing.fake_sandbox import FakeSandbox
from tests.contract.hostile.lying_runner import Lie, LyingRunner

LIMITS = ConnectionLimits(reattach_seconds=5.0, ping_seconds=1.0, channel=ChannelLimits(hello_seconds=5.0))


def lying_sandbox(runner: LyingRunner, conversation_id: str = "c") -> FakeSandbox:
    """A sandbox in memory, taken over."""
    sandbox = FakeSandbox(SandboxSpec(conversation_id, "tests", "none", "/nowhere"), {})
    sandbox.runner = runner  # type: ignore[assignment] # it has what is used of one
    return sandbox


@asynccontextmanager
async def lied_to(lie: Lie, limits: ConnectionLimits = LIMITS) -> AsyncIterator[tuple[SandboxConnection, LyingRunner]]:
    """A connection to a runner that lies."""
    runner = LyingRunner(lie)
    connection = SandboxConnection(lying_sandbox(runner), limits=limits)
    try:
        yield connection, runner
    finally:
        await connection.close()
        await runner.close()


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until something is so, which has no event for it; the caller has a limit."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.001)
