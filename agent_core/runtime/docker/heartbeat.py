"""Whether an engine answers anything at all, asked beside its calls: a hanging one keeps their threads."""

from __future__ import annotations

import asyncio
import ssl
from typing import NamedTuple

HEARTBEAT_SECONDS = 5.0
"""How long an engine may take to say that it is there. One that is busy says so at once."""


class EngineAddress(NamedTuple):
    """Address of an engine: a socket file, or host and port with or without TLS."""

    socket_path: str | None = None
    host: str = ""
    port: int = 0
    tls: ssl.SSLContext | None = None


class Heartbeat:
    """Asks an engine for a sign of life; those who want to know at the same time share one question.

    `is_silent`: it gave none when it was last asked, and `problem` says how that was.
    """

    def __init__(self, address: EngineAddress) -> None:
        self.is_silent = False
        self.problem = ""
        self._address = address
        self._asking: asyncio.Task[bool] | None = None

    async def beats(self) -> bool:
        """Whether it gives a sign of life within `HEARTBEAT_SECONDS`."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask(), name="docker-heartbeat")
        return await asyncio.shield(self._asking)

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait({self._asking})

    async def _ask(self) -> bool:
        try:
            async with asyncio.timeout(HEARTBEAT_SECONDS):
                self.is_silent, self.problem = not await _said(self._address), "it hangs up"
        except TimeoutError:
            self.is_silent, self.problem = True, f"it gives no sign of life within {HEARTBEAT_SECONDS:g} s"
        except OSError as error:
            self.is_silent, self.problem = True, error.strerror or str(error) or type(error).__name__
        return not self.is_silent


async def _said(address: EngineAddress) -> bytes:
    if address.socket_path is not None:
        reader, writer = await asyncio.open_unix_connection(address.socket_path)
    else:
        reader, writer = await asyncio.open_connection(address.host, address.port, ssl=address.tls)
    try:
        head = f"GET /_ping HTTP/1.1\r\nHost: {address.host or 'docker'}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode())
        return await reader.read(1)  # whatever it says: it is there
    finally:
        writer.transport.abort()
