"""Local sandboxes whose runner does not watch over their disk, as seen from outside."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace

import pytest

from agent_core.errors import SandboxError
from agent_core.runtime.channel.disk_watch import DISK_LIMIT
from agent_core.runtime.sandbox import SandboxStatus
from agent_core.testing.sandbox_contract import LIMITS, SandboxKit, eventually, output, run
from tests.integration.sandbox.test_bad_luck import recorded


@pytest.mark.bubblewrap
async def test_a_sandbox_whose_runner_does_nothing_is_stopped(local_kit: SandboxKit) -> None:
    sandbox = local_kit.connect(limits=replace(LIMITS, disk=24 * 1024**2))
    loop = "i=0; while :; do head -c 4000000 /dev/zero > file$i; i=$((i + 1)); sleep 0.01; done"
    # It is the first process, which nothing in there can stop; from outside one can.
    await output(sandbox, f"nohup bash -c 'until test -e go; do sleep 0.01; done; {loop}' > /dev/null 2>&1 & echo $!")
    state = sandbox.sandbox.state
    os.kill(recorded(local_kit, state["name"])["init"], signal.SIGSTOP)
    os.close(os.open(f"{local_kit.data_dir}/sandboxes/{state['name']}/workspace/go", os.O_CREAT))
    task = asyncio.create_task(run(sandbox, "echo never"))
    await eventually(lambda: DISK_LIMIT in local_kit.statuses(), limit=60)
    (text,) = {text for _, status, text in local_kit.notices if status == DISK_LIMIT}
    assert "The sandbox was stopped" in text
    assert "24.0 MiB" in text
    with pytest.raises(SandboxError):
        await task
    assert await sandbox.sandbox.poll() is SandboxStatus.STOPPED
    assert "file0" in (await run(sandbox, "ls"))["output"]
    await run(sandbox, "rm -f file*")
    assert await output(sandbox, "ls") == "go"
