"""Program that removes what an engine has of an instance, and what runs it once the process that owns this has ended.

A local sandbox has a guard of its own (`agent_core.runtime.local.launch`); a container belongs to the engine, which
knows nothing of the program that it was made for.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

from agent_core.errors import SandboxError
from agent_core.runtime.docker.provider import DockerProvider

_ATTEMPTS = 30
_RETRY_SECONDS = 10.0
_WAIT = """
import os, select, sys
owner = int(sys.argv[1])
try:
    descriptor = os.pidfd_open(owner)
    if os.getppid() == owner:
        select.select([descriptor], [], [])
except ProcessLookupError:
    pass
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Costs less than waiting with everything imported."""


class OwnerGuard:
    """Waits for the end of this process, however it comes, until `close`."""

    def __init__(self, instance_id: str, host: str | None) -> None:
        remove = (sys.executable, "-m", __name__, instance_id, *([host] if host else []))
        self._program = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-I", "-S", "-c", _WAIT, str(os.getpid()), *remove],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,  # Ctrl-C is meant for the owner
        )

    def close(self) -> None:
        """There is nothing left to be removed."""
        self._program.kill()
        self._program.wait()


async def main(instance_id: str, host: str | None = None) -> None:
    """Remove it, and try again for some minutes where the engine is away."""
    provider = DockerProvider(host)
    try:
        for _ in range(_ATTEMPTS):
            try:
                await provider.reap(instance_id, ())
            except SandboxError:
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return
    finally:
        await provider.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
