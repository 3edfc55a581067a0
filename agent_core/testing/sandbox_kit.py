"""What tests of real sandboxes work with: connections to sandboxes of one provider, and commands in them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from agent_core.runtime.channel.connection import ConnectionLimits, SandboxConnection
from agent_core.runtime.docker.images import DEFAULT_IMAGE
from agent_core.runtime.sandbox import SandboxLimits, SandboxProvider, SandboxSpec, SandboxState

LIMITS = SandboxLimits(
    memory=512 * 1024**2, cpus=2.0, processes=100, tmp_size=16 * 1024**2, start_seconds=30.0, stop_seconds=3.0
)


@dataclass(eq=False)
class SandboxKit:
    """Makes connections for conversations of an instance of its own, and removes everything in the end.

    `confined` is False for a provider without isolation; `told` holds ``(conversation, status id, text)``.
    """

    provider: SandboxProvider
    data_dir: str
    image: str = DEFAULT_IMAGE
    confined: bool = True
    instance: str = field(default_factory=lambda: f"test-{secrets.token_hex(6)}")
    told: list[tuple[str, str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._connections: list[SandboxConnection] = []

    def spec(self, conversation: str = "first", **changes: Any) -> SandboxSpec:
        spec = SandboxSpec(
            conversation, self.instance, image=self.image, data_dir=self.data_dir, network="none", limits=LIMITS
        )
        return replace(spec, **changes)

    def connect(
        self,
        conversation: str = "first",
        *,
        state: SandboxState | None = None,
        patience: ConnectionLimits | None = None,
        provider: SandboxProvider | None = None,
        **changes: Any,
    ) -> SandboxConnection:
        maker = provider or self.provider
        spec = self.spec(conversation, **changes)
        sandbox = maker.create(spec) if state is None else maker.restore(spec, state)

        def told(status: str, text: str) -> None:
            self.told.append((conversation, status, text))

        connection = SandboxConnection(sandbox, on_status=told, limits=patience)
        self._connections.append(connection)
        return connection

    def statuses(self, conversation: str = "first") -> list[str]:
        return [status for name, status, _ in self.told if name == conversation]

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()
        await self.provider.reap(self.instance, [])
        await self.provider.close()


async def run(connection: SandboxConnection, command: str, **options: Any) -> dict[str, Any]:
    """Run a command in the default shell, for at most 30 seconds, and return the runner's result."""
    args = {"session": "default", "command": command, "timeout": 30, **options.pop("args", {})}
    return (await connection.request("shell.run", args, limit_seconds=60, **options)).result


async def output(connection: SandboxConnection, command: str) -> str:
    """What a command that must succeed prints, without surrounding space."""
    result = await run(connection, command)
    if result["exit_code"] != 0:
        raise AssertionError(f"{command!r} ended with {result}")
    return str(result["output"]).strip()


def drop_stream(connection: SandboxConnection) -> None:
    """Cut the stream of a connection, as a network does."""
    channel = connection._link.channel
    if channel is not None:
        channel._writer.transport.abort()


async def eventually(condition: Callable[[], Any], *, limit: float = 10.0) -> None:
    """Wait until a condition holds (it may be a coroutine function), looking often."""
    async with asyncio.timeout(limit):
        while True:
            held = condition()
            if asyncio.iscoroutine(held):
                held = await held
            if held:
                return
            await asyncio.sleep(0.01)
