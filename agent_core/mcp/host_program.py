"""Programs of this host as servers: started with few variables, and certainly ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Mapping

from agent_core.mcp.config import McpServer
from agent_core.mcp.group_guard import group_guard
from agent_core.mcp.program import McpServerError

EXIT_SECONDS = 1.0
"""What a program gets to end by itself when its input ends, and again after it was asked to terminate."""
EXIT_LOOK_SECONDS = 0.01
LAST_WORDS_BYTES = 2_000
LAST_WORDS_SECONDS = 0.2
READ_BYTES = 256 * 1024

INHERITED = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
"""The variables of this process that a program gets: none of them is secret."""


class HostPrograms:
    """Programs run on this host, with the rights of this process."""

    async def ready(self) -> None:
        """They can be started at once."""

    async def start(self, server: McpServer) -> HostProgram:
        """Start the program of a server.

        Raises:
            McpServerError: it is not there, or cannot be started.
        """
        environment = {**_inherited(os.environ), **server.env}
        command = server.command or ""
        found = shutil.which(command, path=environment.get("PATH", os.defpath))
        if found is None:
            raise McpServerError(
                f"its command {command!r} was not found on this host; install it, or give the full path of the program"
            )
        try:
            process = await asyncio.create_subprocess_exec(
                found,
                *server.args,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=server.cwd,
                env=environment,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise McpServerError(f"its command {command!r} cannot be started: {reason}") from None
        with contextlib.suppress(OSError):  # then one that ignores the end of its input outlives a killed server
            group_guard().watch(process.pid)
        return HostProgram(process)


class HostProgram:
    """A process of this host (`agent_core.mcp.program.RunningProgram`)."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None  # noqa: S101, PT018
        self._process = process
        self._input, self._output = process.stdin, process.stdout
        self._last_words = b""
        self._listening = asyncio.create_task(self._listen(process.stderr), name=f"mcp-stderr:{process.pid}")

    async def read(self) -> bytes:
        return await self._output.read(READ_BYTES)

    async def write(self, data: bytes) -> None:
        try:
            self._input.write(data)  # some loops refuse at once what others only find out while they wait
            await self._input.drain()
        except RuntimeError as error:
            raise ConnectionError("the program is gone") from error

    async def last_words(self) -> str:
        await asyncio.wait([self._listening], timeout=LAST_WORDS_SECONDS)
        return self._last_words.decode("utf-8", "replace")

    async def stop(self) -> None:
        process = self._process
        self._input.close()
        if not await _has_exited(process):
            _signal(process.pid, signal.SIGTERM)
            await _has_exited(process)
        _signal(process.pid, signal.SIGKILL)  # what it started itself, too
        group_guard().forget(process.pid)
        await _has_exited(process)
        await asyncio.wait([self._listening], timeout=LAST_WORDS_SECONDS)
        self._listening.cancel()
        await asyncio.wait([self._listening])
        # A process that left the group may hold the pipes open; there is no public way to let go of our ends.
        transport = getattr(process, "_transport", None)
        if transport is not None:
            transport.close()

    async def _listen(self, errors: asyncio.StreamReader) -> None:
        while data := await errors.read(65_536):
            self._last_words = (self._last_words + data)[-LAST_WORDS_BYTES:]


def _inherited(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: environment[name] for name in INHERITED if name in environment}


async def _has_exited(process: asyncio.subprocess.Process) -> bool:
    """Whether the program ends within `EXIT_SECONDS`; those that it left its pipes to do not count."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(EXIT_SECONDS):
            while process.returncode is None:  # noqa: ASYNC110 - `wait` would wait for the ends of the pipes as well
                await asyncio.sleep(EXIT_LOOK_SECONDS)
    return process.returncode is not None


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
