"""Ports of a conversation's sandbox, for its program: what listens there, and connections to it."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

from agent_core.errors import SandboxError
from agent_core.library.run_loop import RunLoop
from agent_core.runtime.channel.tunnels import OpenPort, PortConnection, listening

_CHUNK = 64 * 1024


class ConversationPorts:
    """Reaches ports of one conversation's sandbox; its coroutines run in the library's loop."""

    def __init__(self, work: RunLoop) -> None:
        self._work = work
        self._carrying: set[asyncio.Task[None]] = set()  # each ends with either of its sides, and with the conversation

    async def listening(self) -> list[OpenPort]:
        """The TCP ports that something in the sandbox listens on."""
        async with self._work.sessions.sandbox_access() as sandbox:
            return await listening(sandbox)

    async def connect(self, port: int) -> socket.socket:
        """The caller's end of a pair of sockets, between whose other one and the port all bytes are carried."""
        session = self._work.session_at_work
        sandbox = session.sandbox if session is not None else await self._work.sandbox.lend()
        connection = await sandbox.connect_port(port)
        own, callers = socket.socketpair()
        task = asyncio.create_task(_carry(connection, own), name="port-connection")
        self._carrying.add(task)
        task.add_done_callback(self._carrying.discard)
        return callers


async def _carry(connection: PortConnection, own: socket.socket) -> None:
    reader, writer = await asyncio.open_connection(sock=own)
    outward = asyncio.create_task(_out(connection, reader), name="port-connection-out")
    inward = asyncio.create_task(_in(connection, writer), name="port-connection-in")
    try:
        await asyncio.wait({outward, inward}, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in (outward, inward):
            task.cancel()
        await asyncio.wait({outward, inward})
        connection.close()
        writer.close()
        for task in (outward, inward):
            # Either side may be gone: the caller sees the end, which is all that can be said on a socket.
            with suppress(SandboxError, OSError, asyncio.CancelledError):
                task.result()


async def _out(connection: PortConnection, reader: asyncio.StreamReader) -> None:
    while data := await reader.read(_CHUNK):
        await connection.write(data)
    connection.end()


async def _in(connection: PortConnection, writer: asyncio.StreamWriter) -> None:
    while data := await connection.read():
        writer.write(data)
        await writer.drain()
    writer.write_eof()
