"""MCP servers that are programs in the conversation's sandbox, where they have no more than the agent (3.5)."""

from __future__ import annotations

import asyncio
from typing import Any

from agent_core.errors import SandboxError
from agent_core.mcp.config import McpServer
from agent_core.mcp.program import McpServerError
from agent_core.runtime.tunnels import PortConnection, ProgramAccess

EXIT_SECONDS = 1.0
"""What a program gets to end by itself when its input ends."""
NOT_FOUND = (
    "its command {command!r} was not found in the sandbox; use an image that has it (setting sandbox_image;"
    " runtime_images/README.md shows how to make one with npx and uvx), give the full path of a program there, or give"
    " the address of a server that runs elsewhere"
)


class SandboxPrograms:
    """Programs run in this sandbox (`agent_core.mcp.program.ProgramPlace`), once it `is_up`."""

    def __init__(self, sandbox: ProgramAccess) -> None:
        self.is_up = asyncio.Event()
        self._sandbox = sandbox

    async def ready(self) -> None:
        await self.is_up.wait()

    async def start(self, server: McpServer) -> SandboxProgram:
        """Start the program of a server.

        Raises:
            McpServerError: it is not there, cannot be started, or there is no sandbox.
        """
        command = server.command or ""
        order: dict[str, Any] = {"command": [command, *server.args], "env": dict(server.env), "cwd": server.cwd}
        try:
            return SandboxProgram(await self._sandbox.start_program(order))
        except SandboxError as error:
            text = NOT_FOUND.format(command=command) if error.code == "not_found" else str(error)
            raise McpServerError(text) from error


class SandboxProgram:
    """A program in a sandbox (`agent_core.mcp.program.RunningProgram`)."""

    def __init__(self, connection: PortConnection) -> None:
        self._connection = connection
        self._turn = asyncio.Lock()
        self._writing: set[asyncio.Task[None]] = set()

    async def read(self) -> bytes:
        try:
            return await self._connection.read()
        except SandboxError as error:
            raise ConnectionError(str(error)) from error

    async def write(self, data: bytes) -> None:
        # In a task of its own: a caller that is cancelled must not leave half a message behind.
        writing = asyncio.create_task(self._write(data), name="mcp-write")
        self._writing.add(writing)
        writing.add_done_callback(self._written)
        await asyncio.shield(writing)

    async def last_words(self) -> str:
        return self._connection.last_words

    async def stop(self) -> None:
        self._connection.end()
        try:
            async with asyncio.timeout(EXIT_SECONDS):
                while await self._connection.read():
                    pass
        except (TimeoutError, SandboxError):
            pass  # closing ends it
        finally:
            self._connection.close()

    async def _write(self, data: bytes) -> None:
        async with self._turn:
            try:
                await self._connection.write(data)
            except SandboxError as error:
                raise ConnectionError(str(error)) from error

    def _written(self, writing: asyncio.Task[None]) -> None:
        self._writing.discard(writing)
        if not writing.cancelled():
            writing.exception()  # whoever waits for it raises it; nobody may be left
