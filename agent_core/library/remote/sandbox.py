"""A conversation's sandbox at a server, asked request by request."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, NoReturn

from agent_core.errors import SandboxError, SandboxLostError, ToolError
from agent_core.library.open_session import SandboxUse
from agent_core.runtime.channel.connection import SandboxConnection
from agent_core.runtime.channel.tunnels import PortConnection
from agent_core.runtime.sandbox import WORKSPACE, KeyState
from agent_core.tools.context import SandboxReply
from drydock_client.programs import ProgramsApi

NO_TUNNELS = (
    "A server lends no connection to a port of its sandboxes; open the preview that its page shows under Ports."
)
MAX_SECONDS: Final = 3600.0
"""As long as a server waits for one request to a sandbox."""
TOO_LONG = (
    f"A server waits {MAX_SECONDS / 60:g} minutes for one command at most, a little less than that by its own limit;"
    " give a shorter one, or have the command run in the background (`nohup … > log 2>&1 &`) and look again."
)


class RemoteSandbox:
    """Fulfils `ConversationSandbox` by requests to the server; `call` gives its errors the library's form."""

    working_dir = WORKSPACE

    def __init__(
        self, conversation_id: str, api: ProgramsApi, call: Callable[[Awaitable[Any]], Awaitable[Any]]
    ) -> None:
        self._id = conversation_id
        self._api = api
        self._call = call

    async def start(self, progress: object = None) -> None:
        """The server does, with the first request."""

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
        if limit_seconds is not None and limit_seconds > MAX_SECONDS:
            raise ToolError(TOO_LONG)
        reply = await self._call(
            self._api.ask_sandbox(self._id, op, args, key=key, limit_seconds=limit_seconds, blob=blob)
        )
        if reply.failure is not None:
            _fail(reply.failure)
        found: SandboxReply = reply
        return found

    async def lookup(self, key: str) -> KeyState:
        return "unknown"

    async def until_thawed(self) -> None:
        """Its server waits."""

    async def ack(self, keys: Iterable[str]) -> None:
        """The server's sandbox forgets them in its own time."""

    async def connect_port(self, port: int) -> PortConnection:
        raise SandboxError(NO_TUNNELS, code="not_here")

    async def start_program(self, order: Mapping[str, Any]) -> PortConnection:
        raise SandboxError(NO_TUNNELS, code="not_here")


def _fail(failure: Mapping[str, Any]) -> NoReturn:
    message, code = str(failure.get("message", "")), str(failure.get("code", ""))
    if failure.get("kind") == "tool":
        error = ToolError(message)
        error.code = code
        raise error
    if failure.get("kind") == "lost":
        raise SandboxLostError(message)
    raise SandboxError(message, code=code or "sandbox")


async def _opened_elsewhere() -> NoReturn:
    raise SandboxError(NO_TUNNELS, code="not_here")


class RemoteSandboxUse(SandboxUse):
    """The sandbox of the server's conversation: many may use it at once, and nothing of it is opened or closed here."""

    def __init__(self, find: Callable[[], Awaitable[RemoteSandbox]]) -> None:
        super().__init__(_opened_elsewhere)
        self._find = find

    @contextlib.asynccontextmanager
    async def for_one_call(self) -> AsyncIterator[Any]:
        yield await self._find()

    async def lend(self) -> SandboxConnection:
        raise SandboxError(NO_TUNNELS, code="not_here")
