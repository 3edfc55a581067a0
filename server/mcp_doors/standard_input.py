"""Standard input line by line on the event loop, so that a signal need not wait for a line that never comes.

The protocol's library reads it in a thread, which nothing ends but the other side.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from typing import Final, Self

MAX_LINE_BYTES: Final = 32 * 1024 * 1024
TOO_LONG: Final = f"a line of more than {MAX_LINE_BYTES} bytes"


class InputLines:
    """An async iterator over the lines of a stream, as texts; what is no UTF-8 is replaced.

    A line that is too long is read past and given as a text that is no message, which is answered as such.
    """

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        try:
            line = await self._reader.readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            line = error.partial
        except asyncio.LimitOverrunError:
            await self._pass_over()
            return TOO_LONG
        if not line:
            raise StopAsyncIteration
        return line.decode("utf-8", "replace")

    async def _pass_over(self) -> None:
        while True:
            try:
                await self._reader.readuntil(b"\n")
            except asyncio.LimitOverrunError as error:
                await self._reader.readexactly(max(1, error.consumed))
            except asyncio.IncompleteReadError:
                return
            else:
                return


async def standard_input() -> InputLines | None:
    """The lines of standard input; None where it cannot be waited for: a file, which ends by itself."""
    mode = os.fstat(sys.stdin.fileno()).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or sys.stdin.isatty()):
        return None
    reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin.buffer)
    return InputLines(reader)
