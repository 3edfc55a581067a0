"""A proxy as companies have them: who wants out asks it with CONNECT, and it alone knows where names are."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator

from tests.listening import listening

_PIECE = 64 * 1024


class ConnectProxy:
    """What it was asked for is in `targets`, as ``host:port``; `places` says at which port of this machine that is.

    With `password` who asks has to be ``me`` with it; what is not in `places` is refused.
    """

    def __init__(self, places: dict[str, int], password: str = "") -> None:
        self._places = places
        self._wanted = f"Basic {base64.b64encode(f'me:{password}'.encode()).decode()}" if password else ""
        self.targets: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ")
        self.targets.append(target)
        given = next((line.partition(": ")[2] for line in head if line.lower().startswith("proxy-authorization:")), "")
        if given != self._wanted:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n\r\n")
        elif method != "CONNECT" or target not in self._places:
            writer.write(b"HTTP/1.1 403 Forbidden by the policy\r\n\r\n")
        else:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await through(reader, writer, self._places[target])


async def through(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    """Pass everything on to this port of this machine, and back, until one side has ended."""
    inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
    ways = [
        asyncio.create_task(_one_way(reader, inner_writer)),
        asyncio.create_task(_one_way(inner_reader, writer)),
    ]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        inner_writer.close()


async def _one_way(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(_PIECE):
            writer.write(piece)
            await writer.drain()


@contextlib.asynccontextmanager
async def connect_proxy(places: dict[str, int], password: str = "") -> AsyncIterator[tuple[ConnectProxy, int]]:
    """The proxy and its port."""
    proxy = ConnectProxy(places, password)
    async with listening(proxy.serve) as port:
        yield proxy, port
