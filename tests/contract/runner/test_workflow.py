"""Scripts that fan out sub-agents, run as programs by the real runner."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from agent_core.runtime.channel import RunnerChannel
from agent_core.runtime.sandbox import Attachment
from agent_core.runtime.tunnels import PortConnection
from agent_core.testing.answering_sandbox import AnsweringSandbox, FakeCall
from agent_core.tools.workflow_run import ScriptRun
from runtime_images.runner.wire import TUNNEL_WINDOW
from tests.contract.runner.client import Runner, connect
from tests.contract.runner.test_programs import PATH
from tests.unit.tools.test_workflow import Helpers

LIMIT_SECONDS = 60.0


class Programs:
    """The programs of a runner (`agent_core.tools.programs.ProgramStarter`)."""

    def __init__(self, channel: RunnerChannel) -> None:
        self._channel = channel

    async def start_program(self, order: Mapping[str, Any]) -> PortConnection:
        return await self._channel.start_program({**order, "env": PATH})


SCRIPT = f"""
import os, pathlib
async def workflow(agent):
    pathlib.Path("made.txt").write_text("here")
    long = await agent("x" * 90_000)
    three = await asyncio.gather(*(agent(name) for name in "abc"))
    for _ in range({TUNNEL_WINDOW // 10_000}):
        print("y" * 20_000)
    return [len(long), three, os.listdir()]
"""


async def test_a_script_and_its_sub_agents_speak_through_the_real_runner(runner: Runner) -> None:
    stream = await asyncio.to_thread(connect, runner.socket)
    channel = await RunnerChannel.open(Attachment(*await asyncio.open_unix_connection(sock=stream)))
    try:
        run = ScriptRun(FakeCall(AnsweringSandbox()), Helpers(), 8)
        await run.carry_out(Programs(channel), SCRIPT, LIMIT_SECONDS)
        assert run.problem == ""
        length, three, files = json.loads(run.result)
        assert length == 90_000 + len("did ")
        assert three == ["did a", "did b", "did c"]
        assert "made.txt" in files
        assert run.printed.total > TUNNEL_WINDOW

        run = ScriptRun(FakeCall(AnsweringSandbox()), Helpers(), 8)
        await run.carry_out(Programs(channel), "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", LIMIT_SECONDS)
        assert "ended before it was done" in run.problem
    finally:
        await channel.close()
