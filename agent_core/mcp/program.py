"""Servers that are programs: spoken to line by line, wherever they run, and those that run on this host.

Unlike the `mcp` package's own transport this one bounds lines, garbage, and the wait for a program's end.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import signal
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from agent_core.errors import DrydockError
from agent_core.json_values import TooManyValuesError, counted, may_have_more
from agent_core.mcp.config import McpServer
from agent_core.mcp.group_guard import GROUP_GUARD, MARK, end_marked

MAX_BYTES: Final = 16 * 1024 * 1024
MAX_VALUES: Final = 100_000
"""More values would be parsed for so long that everybody else had to wait."""
TOO_MUCH: Final = f"it answered with more than {MAX_BYTES} bytes or {MAX_VALUES} JSON values at once"
COMPRESSED: Final = "it answered with something compressed, though it was asked not to"
UNREADABLE: Final = "its answer cannot be read: it is no message of the protocol"


async def has_too_many_values(document: bytes) -> bool:
    """Whether this JSON has more than `MAX_VALUES`."""
    if may_have_more(document, MAX_VALUES):
        try:
            for _ in counted(document, most=MAX_VALUES):
                await asyncio.sleep(0)
        except TooManyValuesError:
            return True
    return False


def read_message(line: bytes) -> Any:
    """The message of a line as the `mcp` package wants it; raises `ValueError` when it is none."""
    from mcp.shared.message import SessionMessage
    from mcp.types import PARSE_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter

    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict) or "method" in message or not ({"result", "error"} & message.keys()):
            raise
        if not isinstance(request := message.get("id"), int | str):
            raise
        # An answer that cannot be read is one all the same: nobody shall wait for another.
        error = ErrorData(code=PARSE_ERROR, message=UNREADABLE)
        return SessionMessage(JSONRPCError(jsonrpc="2.0", id=request, error=error))


MAX_GARBAGE = 200
"""Lines in a row that are no messages, after which a program counts as broken."""

ENDED = "it ended"
GARBAGE = "it writes what is no message of the protocol to its standard output"
TOO_LONG = f"it wrote a line of more than {MAX_BYTES} bytes"
TOO_MANY = f"it wrote a line of more than {MAX_VALUES} JSON values"

OnEnd = Callable[[str], None]
"""Told why a connection is over."""


class McpServerError(DrydockError):
    """A server cannot be used; the message says why and what to do about it."""


class RunningProgram(Protocol):
    """A program that runs somewhere. One task reads, others write; both raise `ConnectionError` when it is gone."""

    async def read(self) -> bytes: ...

    async def write(self, data: bytes) -> None:
        """Write all of it and nothing of another's in between; waits while the program does not read."""

    async def last_words(self) -> str: ...

    async def stop(self) -> None:
        """End it, and what it has started, within a bounded time."""


class ProgramPlace(Protocol):
    """Where programs run."""

    async def ready(self) -> None: ...

    async def start(self, server: McpServer) -> RunningProgram:
        """Start the program of a server; raises `McpServerError`."""


class ProgramTransport:
    """A transport for the `mcp` package: entered, it gives the streams of messages in and out."""

    def __init__(self, server: McpServer, place: ProgramPlace, on_end: OnEnd) -> None:
        self._server = server
        self._place = place
        self._on_end = on_end
        self._program: RunningProgram | None = None

    async def __aenter__(self) -> tuple[ProgramOutput, ProgramInput]:
        program = self._program = await self._place.start(self._server)
        return ProgramOutput(program.read, self._on_end), ProgramInput(program)

    async def __aexit__(self, *details: object) -> None:
        if self._program is None:
            return
        stopping = asyncio.create_task(self._program.stop(), name="mcp-stop")
        try:
            await asyncio.shield(stopping)
        except asyncio.CancelledError:
            await asyncio.wait([stopping])  # it is bounded, and what it ends must not be left behind
            raise

    async def last_words(self) -> str:
        """The end of its standard error, as the end of a sentence."""
        words = await self._program.last_words() if self._program is not None else ""
        lines = words.strip().splitlines()[-3:]
        return f". It said: {' / '.join(line.strip()[:300] for line in lines)}" if lines else ""


class ProgramOutput:
    """The messages that a program writes, one a line."""

    def __init__(self, read: Callable[[], Awaitable[bytes]], on_end: OnEnd) -> None:
        self._read = read
        self._on_end = on_end
        self._is_over = False
        self._buffer = bytearray()
        self._searched = 0

    async def receive(self) -> Any:
        return await self.__anext__()

    async def aclose(self) -> None:
        self._is_over = True

    def __aiter__(self) -> ProgramOutput:
        return self

    async def __anext__(self) -> Any:
        garbage = 0
        while not self._is_over:
            await asyncio.sleep(0)  # lines that are there already are given without waiting for anything
            line = await self._line()
            if not line.strip():
                continue
            if await has_too_many_values(line):
                self._finish(TOO_MANY)
                break
            try:
                return read_message(line)
            except ValueError:
                garbage += 1
            if garbage > MAX_GARBAGE:
                self._finish(GARBAGE)
        raise StopAsyncIteration

    async def _line(self) -> bytes:
        while (end := self._buffer.find(b"\n", self._searched)) < 0:
            self._searched = len(self._buffer)
            if self._searched > MAX_BYTES:
                self._finish(TOO_LONG)
                return b""
            try:
                data = await self._read()
            except ConnectionError:
                data = b""
            if not data:
                self._finish(ENDED)
                return b""
            self._buffer += data
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._searched = 0
        return line

    def _finish(self, reason: str) -> None:
        self._is_over = True
        self._buffer.clear()
        self._on_end(reason)

    async def __aenter__(self) -> ProgramOutput:
        return self

    async def __aexit__(self, *details: object) -> None:
        await self.aclose()


class ProgramInput:
    """The messages to a program."""

    def __init__(self, program: RunningProgram) -> None:
        self._program = program

    async def send(self, item: Any, /) -> None:
        """Write one message; waits while the program does not read. Raises anyio's `BrokenResourceError`."""
        # The MCP SDK expects the error of its own streams.
        from anyio import BrokenResourceError

        line = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        try:
            await self._program.write(line)
        except ConnectionError:
            raise BrokenResourceError from None

    async def aclose(self) -> None:
        """Nothing: the program ends when the transport is left."""

    async def __aenter__(self) -> ProgramInput:
        return self

    async def __aexit__(self, *details: object) -> None:
        await self.aclose()


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
        inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
        mark = secrets.token_hex(8)
        environment = {**inherited, **server.env, MARK: mark}
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
            GROUP_GUARD.watch(process.pid, mark)
        return HostProgram(process, mark)


class HostProgram:
    """A process of this host (`agent_core.mcp.program.RunningProgram`)."""

    def __init__(self, process: asyncio.subprocess.Process, mark: str) -> None:
        """`mark`: what its environment, and that of all that it starts, has as `MARK`."""
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None  # noqa: S101, PT018
        self._process = process
        self._mark = mark
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
        await asyncio.to_thread(end_marked, {self._mark})  # wherever that has gone
        GROUP_GUARD.forget(process.pid)
        await _has_exited(process)
        await asyncio.wait([self._listening], timeout=LAST_WORDS_SECONDS)
        self._listening.cancel()
        await asyncio.wait([self._listening])
        # A process that has shed its mark, too, may hold the pipes open; there is no public way to let go of our ends.
        transport = getattr(process, "_transport", None)
        if transport is not None:
            transport.close()

    async def _listen(self, errors: asyncio.StreamReader) -> None:
        while data := await errors.read(65_536):
            self._last_words = (self._last_words + data)[-LAST_WORDS_BYTES:]


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
