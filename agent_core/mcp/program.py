"""A server that is a program of this host: started, spoken to line by line, and certainly ended (agent-core 3.5).

The client library's own transport for programs keeps lines of any length, reports each line of garbage with a traceback
and can wait for ever for a program that never stops writing; this one has a bound for each of these.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Mapping
from typing import Any

from agent_core.errors import DrydockError
from agent_core.mcp.config import McpServer
from agent_core.mcp.group_guard import group_guard

MAX_LINE_BYTES = 16 * 1024 * 1024
MAX_GARBAGE = 200
"""Lines in a row that are no messages, after which a program counts as broken."""
EXIT_SECONDS = 1.0
"""What a program gets to end by itself when its input ends, and again after it was asked to terminate."""
EXIT_LOOK_SECONDS = 0.01
LAST_WORDS_BYTES = 2_000
LAST_WORDS_SECONDS = 0.2

INHERITED = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
"""The variables of this process that a program gets: none of them is secret."""

ENDED = "it ended"
GARBAGE = "it writes what is no message of the protocol to its standard output"
TOO_LONG = f"it wrote a line of more than {MAX_LINE_BYTES} bytes"

OnEnd = Callable[[str], None]
"""Told why a connection is over."""


class McpServerError(DrydockError):
    """A server cannot be used; the message says why and what to do about it."""


class Program:
    """A transport of the client library: entered, it gives the stream of messages in and the one of messages out.

    ``parse(line)`` gives the message in a line; it raises ValueError when there is none.
    """

    def __init__(self, server: McpServer, *, parse: Callable[[bytes], Any], on_end: OnEnd) -> None:
        self._server = server
        self._parse = parse
        self._on_end = on_end
        self._process: asyncio.subprocess.Process | None = None
        self._listening: asyncio.Task[None] | None = None
        self._last_words = b""

    async def __aenter__(self) -> tuple[Incoming, Outgoing]:
        environment = {**_inherited(os.environ), **self._server.env}
        command = self._server.command or ""
        found = shutil.which(command, path=environment.get("PATH", os.defpath))
        if found is None:
            raise McpServerError(
                f"its command {command!r} was not found on this host; install it, or give the full path of the program"
            )
        try:
            self._process = await asyncio.create_subprocess_exec(
                found,
                *self._server.args,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=self._server.cwd,
                env=environment,
                limit=MAX_LINE_BYTES,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise McpServerError(f"its command {command!r} cannot be started: {reason}") from None
        process = self._process
        with contextlib.suppress(OSError):  # then one that ignores the end of its input outlives a killed server
            group_guard().watch(process.pid)
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None  # noqa: S101, PT018
        name = f"mcp-stderr:{process.pid}"
        self._listening = asyncio.create_task(self._listen(process.stderr), name=name)
        return Incoming(process.stdout, self._parse, self._on_end), Outgoing(process.stdin)

    async def __aexit__(self, *details: object) -> None:
        stopping = asyncio.create_task(self._stop(), name="mcp-stop")
        try:
            await asyncio.shield(stopping)
        except asyncio.CancelledError:
            await asyncio.wait([stopping])  # it is bounded, and what it ends must not be left behind
            raise

    async def last_words(self) -> str:
        """The end of what it wrote to its standard error, as the end of a sentence."""
        if self._listening is None:
            return ""
        await asyncio.wait([self._listening], timeout=LAST_WORDS_SECONDS)
        lines = self._last_words.decode("utf-8", "replace").strip().splitlines()[-3:]
        return f". It said: {' / '.join(line.strip()[:300] for line in lines)}" if lines else ""

    async def _listen(self, errors: asyncio.StreamReader) -> None:
        while data := await errors.read(65_536):
            self._last_words = (self._last_words + data)[-LAST_WORDS_BYTES:]

    async def _stop(self) -> None:
        process = self._process
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        if not await _has_exited(process):
            _signal(process.pid, signal.SIGTERM)
            await _has_exited(process)
        _signal(process.pid, signal.SIGKILL)  # what it started itself, too
        group_guard().forget(process.pid)
        await _has_exited(process)
        if self._listening is not None:
            await asyncio.wait([self._listening], timeout=LAST_WORDS_SECONDS)
            self._listening.cancel()
            await asyncio.wait([self._listening])
        # A process that left the group may hold the pipes open; there is no public way to let go of our ends.
        transport = getattr(process, "_transport", None)
        if transport is not None:
            transport.close()


class Incoming:
    """The messages that a program writes, one a line."""

    def __init__(self, output: asyncio.StreamReader, parse: Callable[[bytes], Any], on_end: OnEnd) -> None:
        self._output = output
        self._parse = parse
        self._on_end = on_end
        self._is_over = False

    async def receive(self) -> Any:
        """The next message; the form in which the library asks where it does not iterate."""
        return await self.__anext__()

    async def aclose(self) -> None:
        self._is_over = True

    def __aiter__(self) -> Incoming:
        return self

    async def __anext__(self) -> Any:
        garbage = 0
        while not self._is_over:
            await asyncio.sleep(0)  # lines that are there already are given without waiting for anything
            try:
                line = await self._output.readline()
            except (ValueError, ConnectionError):
                self._finish(TOO_LONG)
                break
            if not line:
                self._finish(ENDED)
                break
            if not line.strip():
                continue
            try:
                return self._parse(line)
            except ValueError:
                garbage += 1
            if garbage > MAX_GARBAGE:
                self._finish(GARBAGE)
        raise StopAsyncIteration

    def _finish(self, reason: str) -> None:
        self._is_over = True
        self._on_end(reason)

    async def __aenter__(self) -> Incoming:
        return self

    async def __aexit__(self, *details: object) -> None:
        await self.aclose()


class Outgoing:
    """The messages to a program."""

    def __init__(self, target: asyncio.StreamWriter) -> None:
        self._target = target

    async def send(self, item: Any, /) -> None:
        """Write one message; waits while the program does not read.

        Raises:
            BrokenResourceError: the program is gone.
        """
        # The library expects the error of its own streams.
        from anyio import BrokenResourceError

        line = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        try:
            self._target.write(line)  # some loops refuse at once what others only find out while they wait
            await self._target.drain()
        except (ConnectionError, RuntimeError):
            raise BrokenResourceError from None

    async def aclose(self) -> None:
        self._target.close()

    async def __aenter__(self) -> Outgoing:
        return self

    async def __aexit__(self, *details: object) -> None:
        await self.aclose()


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
