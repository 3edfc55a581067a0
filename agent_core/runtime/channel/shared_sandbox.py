"""A conversation's sandbox for one of its sub-agents: the same files, shells of its own."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from agent_core.errors import SandboxLostError
from agent_core.runtime.channel.tunnels import PortAccess, PortConnection, ProgramAccess
from agent_core.runtime.sandbox import KeyState, Progress
from agent_core.tools.context import SandboxReply

MAX_NAME: Final = 64
SESSION: Final = "session"


class KeyedSandbox(PortAccess, ProgramAccess, Protocol):
    """What sub-agents share of a `SandboxConnection`."""

    async def start(self, progress: Progress | None = None) -> object: ...

    async def lookup(self, key: str) -> KeyState: ...

    async def ack(self, keys: Iterable[str]) -> None: ...


class SharedSandbox:
    """Another one's sandbox, whose life is not this one's to decide and of which its owner tells the user.

    `prefix` begins the names of the shells in it. When this is closed, for ever, what was asked for goes on there.
    """

    def __init__(self, sandbox: KeyedSandbox, prefix: str) -> None:
        self._sandbox = sandbox
        self._prefix = prefix
        self._asked: set[asyncio.Task[SandboxReply]] = set()
        self._closed = asyncio.Event()

    @property
    def working_dir(self) -> str:
        return self._sandbox.working_dir

    async def start(self, progress: Progress | None = None) -> object:
        return await self._sandbox.start(progress)

    def listen(self, progress: Progress) -> None:
        """Nothing is told: its owner tells the user what becomes of it."""

    async def request(
        self,
        op: str,
        args: Mapping[str, Any],
        *,
        key: str | None = None,
        limit_seconds: float | None = None,
        on_output: Callable[[str], None] | None = None,
        blob: bytes | None = None,
    ) -> SandboxReply:
        if self._closed.is_set():
            raise SandboxLostError("The sub-agent has let go of the sandbox.")
        if SESSION in args:
            args = {**args, SESSION: self.session_name(str(args[SESSION]))}
        elif op.startswith("shell."):
            args = {**args, SESSION: self.session_name("default")}
        asked = self._sandbox.request(op, args, key=key, limit_seconds=limit_seconds, on_output=on_output, blob=blob)
        asking: asyncio.Task[SandboxReply] = asyncio.ensure_future(asked)
        closing = asyncio.ensure_future(self._closed.wait())
        self._asked.add(asking)
        asking.add_done_callback(self._answered)
        try:
            await asyncio.wait({asking, closing}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            asking.cancel()
            await asyncio.wait({asking})
            raise
        finally:
            closing.cancel()
        if not asking.done():
            raise SandboxLostError("The sub-agent has let go of the sandbox.")
        return asking.result()

    async def connect_port(self, port: int) -> PortConnection:
        return await self._sandbox.connect_port(port)

    async def start_program(self, order: Mapping[str, Any]) -> PortConnection:
        return await self._sandbox.start_program(order)

    def session_name(self, name: str) -> str:
        whole = f"{self._prefix}:{name}"
        if len(whole) <= MAX_NAME:
            return whole
        return f"sub:{hashlib.sha256(whole.encode()).hexdigest()[:32]}"

    async def lookup(self, key: str) -> KeyState:
        return await self._sandbox.lookup(key)

    async def ack(self, keys: Iterable[str]) -> None:
        await self._sandbox.ack(keys)

    async def pause(self) -> None:
        """Nothing: it is not this one's."""

    async def stop(self) -> None:
        """Nothing: it is not this one's."""

    async def destroy(self) -> None:
        """Nothing: it is not this one's."""

    async def close(self) -> None:
        self._closed.set()

    def _answered(self, asking: asyncio.Task[SandboxReply]) -> None:
        self._asked.discard(asking)
        if not asking.cancelled():
            asking.exception()  # whoever waited for it has it; nobody may be left
