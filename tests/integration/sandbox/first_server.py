"""A server that is killed: starts a sandbox and a command in it, says so, and waits for its end.

Usage: ``python first_server.py PROVIDER DATA_DIR INSTANCE KEY COMMAND``; prints one line of JSON once the command runs.
"""

from __future__ import annotations

import asyncio
import json
import sys

from agent_core.runtime.channel.connection import SandboxConnection
from agent_core.runtime.docker.provider import DockerProvider
from agent_core.runtime.local.provider import LocalProvider
from agent_core.testing.sandbox_contract import SandboxKit, eventually, run


async def main(name: str, data_dir: str, instance: str, key: str, command: str) -> None:
    provider = DockerProvider() if name == "docker" else LocalProvider(data_dir)
    kit = SandboxKit(provider, data_dir, instance=instance)
    sandbox = kit.connect()
    await sandbox.start()
    heard: list[str] = []
    task = asyncio.create_task(run(sandbox, command, key=key, on_output=heard.append))
    await eventually(lambda: task.done() or "begun" in "".join(heard))
    sys.stdout.write(json.dumps({"state": dict(sandbox.sandbox.state), "boot": boot_of(sandbox)}) + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


def boot_of(sandbox: SandboxConnection) -> str:
    return sandbox.hello.boot if sandbox.hello else ""


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
