"""`SharedSandbox`: a sandbox that is somebody else's, as its guests use it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from agent_core.errors import SandboxLostError
from agent_core.runtime.channel.connection import ConversationSandbox
from agent_core.runtime.channel.tunnels import PortConnection
from agent_core.runtime.sandbox import KeyState, Progress
from agent_core.tools.context import SandboxReply

MAX_NAME: Final = 64
SESSION: Final = "session"


class SharedSandbox:
    """Another one's sandbox, whose life is not this one's to decide and of which its owner tells the user.

    `prefix` begins the names of the shells in it. When this is closed, for ever, what was asked for goes on there.
    """

    def __init__(self, sandbox: ConversationSandbox, prefix: str) -> None:
        self._sandbox = sandbox
        self._prefix = prefix
        self._requests: set[asyncio.Task[SandboxReply]] = set()
        self._closed = asyncio.Event()

    @property
    def working_dir(self) -> str:
        return self._sandbox.working_dir

    async def start(self, progress: Progress | None = None) -> object:
        return await self._sandbox.start(progress)

    def listen(self, progress: Progress) -> None:
        """Nothing is told: its owner tells the user what becomes of it."""

    async def request(self, op: str, args: Mapping[str, Any], **options: Any) -> SandboxReply:
        if self._closed.is_set():
            raise SandboxLostError("The sub-agent has let go of the sandbox.")
        if SESSION in args:
            args = {**args, SESSION: self.session_name(str(args[SESSION]))}
        elif op.startswith("shell."):
            args = {**args, SESSION: self.session_name("default")}
        pending: asyncio.Task[SandboxReply] = asyncio.ensure_future(self._sandbox.request(op, args, **options))
        closing = asyncio.ensure_future(self._closed.wait())
        self._requests.add(pending)
        pending.add_done_callback(self._answered)
        try:
            await asyncio.wait({pending, closing}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            pending.cancel()
            await asyncio.wait({pending})
            raise
        finally:
            closing.cancel()
        if not pending.done():
            raise SandboxLostError("The sub-agent has let go of the sandbox.")
        return pending.result()

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

    async def until_thawed(self) -> None:
        await self._sandbox.until_thawed()

    async def ack(self, keys: Iterable[str]) -> None:
        await self._sandbox.ack(keys)

    async def pause(self) -> None:
        """Nothing, as `stop` and `destroy`: it is not this one's."""

    stop = destroy = pause

    async def close(self) -> None:
        self._closed.set()

    def _answered(self, pending: asyncio.Task[SandboxReply]) -> None:
        self._requests.discard(pending)
        if not pending.cancelled():
            pending.exception()  # whoever waited for it has it; nobody may be left
