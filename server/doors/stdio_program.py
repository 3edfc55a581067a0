"""Programs that another one starts and talks to over standard input and output: ``drydock acp``, ``drydock mcp``."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import stat
import sys
from collections.abc import Coroutine
from typing import Final

MAX_LINE_BYTES: Final = 32 * 1024 * 1024


class LineTooLongError(Exception):
    """A line of more than `MAX_LINE_BYTES`; it was read past."""


def run_over_stdio(name: str, serve: Coroutine[object, object, None]) -> int:
    """Serve until input ends or a signal comes; the exit status. Messages go to standard error."""

    async def until_signalled() -> None:
        serving = asyncio.create_task(serve, name=name)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, serving.cancel)
        await asyncio.wait([serving])
        if not serving.cancelled():
            serving.result()

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format=f"drydock {name}: %(levelname)s: %(message)s")
    asyncio.run(until_signalled())
    return 0


async def standard_input() -> asyncio.StreamReader | None:
    """Standard input, for `read_line`; None where it cannot be waited for: a file, which ends by itself."""
    if not is_stream(sys.stdin.fileno()):
        return None
    reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    return reader


def is_stream(descriptor: int) -> bool:
    """Whether a loop can wait for it: a pipe, a socket or a terminal."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)


async def read_line(reader: asyncio.StreamReader) -> bytes:
    """The next line with its end; empty at the end of the input. Raises `LineTooLongError`."""
    is_too_long = False
    while True:
        try:
            line = await reader.readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            line = error.partial
        except asyncio.LimitOverrunError as error:
            is_too_long = True
            await reader.readexactly(max(error.consumed, 1))
            continue
        if is_too_long:
            raise LineTooLongError
        return line
