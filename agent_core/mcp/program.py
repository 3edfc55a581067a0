"""A server that is a program: spoken to line by line, wherever it runs.

The client library's own transport for programs keeps lines of any length, reports each line of garbage with a traceback
and can wait for ever for a program that never stops writing; this one has a bound for each of these.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from agent_core.errors import DrydockError
from agent_core.json_values import TooManyValuesError, counted, may_have_more
from agent_core.mcp.config import McpServer
from agent_core.mcp.incoming import MAX_BYTES, MAX_VALUES

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
    """A program that runs somewhere. One task reads from it while others write to it."""

    async def read(self) -> bytes:
        """What it wrote next; empty at its end.

        Raises:
            ConnectionError: it is gone.
        """
        ...

    async def write(self, data: bytes) -> None:
        """Write to it, all of it and nothing of another's in between; waits while it does not read.

        Raises:
            ConnectionError: it is gone.
        """
        ...

    async def last_words(self) -> str:
        """The end of what it wrote to its standard error."""
        ...

    async def stop(self) -> None:
        """End it, and what it has started, within a bounded time."""
        ...


class ProgramPlace(Protocol):
    """Where programs run."""

    async def ready(self) -> None:
        """Wait until programs can be started there."""
        ...

    async def start(self, server: McpServer) -> RunningProgram:
        """Start the program of a server.

        Raises:
            McpServerError: it cannot be started; the message says why and what to do.
        """
        ...


class ProgramTransport:
    """A transport of the client library: entered, it gives the stream of messages in and the one of messages out.

    ``parse(line)`` gives the message in a line; it raises ValueError when there is none.
    """

    def __init__(self, server: McpServer, place: ProgramPlace, *, parse: Callable[[bytes], Any], on_end: OnEnd) -> None:
        self._server = server
        self._place = place
        self._parse = parse
        self._on_end = on_end
        self._program: RunningProgram | None = None

    async def __aenter__(self) -> tuple[ProgramOutput, ProgramInput]:
        program = self._program = await self._place.start(self._server)
        return ProgramOutput(program.read, self._parse, self._on_end), ProgramInput(program)

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
        """The end of what it wrote to its standard error, as the end of a sentence."""
        words = await self._program.last_words() if self._program is not None else ""
        lines = words.strip().splitlines()[-3:]
        return f". It said: {' / '.join(line.strip()[:300] for line in lines)}" if lines else ""


class ProgramOutput:
    """The messages that a program writes, one a line."""

    def __init__(self, read: Callable[[], Awaitable[bytes]], parse: Callable[[bytes], Any], on_end: OnEnd) -> None:
        self._read = read
        self._parse = parse
        self._on_end = on_end
        self._is_over = False
        self._buffer = bytearray()
        self._searched = 0

    async def receive(self) -> Any:
        """The next message; the form in which the library asks where it does not iterate."""
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
            if await self._has_too_many_values(line):
                self._finish(TOO_MANY)
                break
            try:
                return self._parse(line)
            except ValueError:
                garbage += 1
            if garbage > MAX_GARBAGE:
                self._finish(GARBAGE)
        raise StopAsyncIteration

    async def _line(self) -> bytes:
        """The next line; empty when it is over."""
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

    async def _has_too_many_values(self, line: bytes) -> bool:
        """Whether everybody else would wait while it is parsed."""
        if may_have_more(line, MAX_VALUES):
            try:
                for _ in counted(line, most=MAX_VALUES):
                    await asyncio.sleep(0)
            except TooManyValuesError:
                return True
        return False

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
        """Write one message; waits while the program does not read.

        Raises:
            BrokenResourceError: the program is gone.
        """
        # The library expects the error of its own streams.
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
