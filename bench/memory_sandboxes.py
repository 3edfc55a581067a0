"""Sandboxes in the server's own memory, for measuring servers with more agents than this machine has room for.

A server has them with ``DRYDOCK_SANDBOX_PROVIDER_CLASS=bench.memory_sandboxes.MemorySandboxes``. What they take of its
processor time, some tenths of a millisecond for a command, counts as the server's.
"""

from __future__ import annotations

from typing import Final

from agent_core.testing.fake_sandbox import FakeAnswer, FakeProvider, FakeRequest, command_result
from server.settings.settings import Settings

NAME: Final = f"{__name__}.MemorySandboxes"


class MemorySandboxes(FakeProvider):
    """A provider of them: every command prints what stands behind its last ``echo``, at once."""

    def __init__(self, settings: Settings) -> None:
        del settings
        super().__init__(handlers={"shell.run": _shell, "workspace.facts": _facts, "shell.kill": _kill})


async def _shell(request: FakeRequest) -> FakeAnswer:
    command = str(request.args.get("command", ""))
    return command_result(command.rpartition("echo ")[2] + "\n")


async def _kill(request: FakeRequest) -> FakeAnswer:
    del request
    return {}


async def _facts(request: FakeRequest) -> FakeAnswer:
    del request
    return {
        "working_dir": "/workspace",
        "user": "agent",
        "hostname": "memory",
        "os": "Linux",
        "python": "3",
        "git": None,
        "instructions": [],
    }
