"""The shells in which hooks run, over the end of their server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from agent_core.errors import SandboxError
from agent_core.runtime.channel.channel import RunnerChannel
from agent_core.runtime.hook_calls import SandboxCommandRunner
from agent_core.tools.context import SandboxAccess, SandboxReply
from tests.contract.runner.client import Runner, attached
from tests.waiting import until


class Access:
    """As much of a sandbox as hooks need."""

    def __init__(self, channel: RunnerChannel) -> None:
        self._channel = channel

    async def request(self, op: str, args: dict[str, Any], *, limit_seconds: float = 60, **more: Any) -> SandboxReply:
        async with asyncio.timeout(limit_seconds):
            return await self._channel.request(op, args, **more)


def children(pid: int) -> str:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text()


async def test_a_hook_whose_server_is_killed_comes_to_its_end_and_leaves_no_shell(runner: Runner) -> None:
    channel = await attached(runner.socket)
    hooks = SandboxCommandRunner(cast(SandboxAccess, Access(channel)))
    command = "touch begun; sleep 0.2; touch ended"
    running = asyncio.create_task(hooks.run(command, stdin="{}", environment={}, limit_seconds=20))
    await until((runner.workspace / "begun").exists)
    await channel.close("its server was killed")
    with pytest.raises(SandboxError):
        await running
    await until((runner.workspace / "ended").exists)
    await until(lambda: not children(runner.process.pid))
