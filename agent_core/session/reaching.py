"""Ports of a conversation's sandbox, for its program: what listens there, and connections to it."""

from __future__ import annotations

import asyncio
import socket
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from agent_core.errors import SandboxError
from agent_core.runtime.listening import OpenPort, listening
from agent_core.runtime.tunnels import PortConnection
from agent_core.session.conversation_loop import ConversationLoop

T = TypeVar("T")

_CHUNK = 64 * 1024

_carrying: set[asyncio.Task[None]] = set()
"""The connections that are open; each ends with either of its sides, and with its conversation."""


class Reaching(ABC):
    """The part of a `Conversation` that reaches ports of its sandbox."""

    _work: ConversationLoop

    def list_ports(self) -> list[OpenPort]:
        """The TCP ports that something in the sandbox listens on, lowest first.

        Raises:
            SandboxError: the sandbox cannot be had.
        """
        return self._do(_list(self._work))

    def connect_port(self, port: int) -> socket.socket:
        """Connect to a port of the sandbox, whatever its network is; what is returned is the caller's to close.

        A connection that is made between runs ends when the next run begins, and one that is made during a run ends
        with it: what listens goes on, and can be connected to again.

        Raises:
            ValueError: `port` is no port.
            PortError: nothing takes connections there.
            SandboxError: the sandbox cannot be had.
        """
        if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
            raise ValueError(f"port is {port!r}: give a whole number from 1 to 65535")
        return self._do(_connect(self._work, port))

    @abstractmethod
    def _do(self, work: Coroutine[Any, Any, T]) -> T: ...


async def _list(work: ConversationLoop) -> list[OpenPort]:
    async with work.sessions.sandbox_access() as sandbox:
        return await listening(sandbox)


async def _connect(work: ConversationLoop, port: int) -> socket.socket:
    if (session := work.session_at_work) is not None:
        return await _carried(await session.sandbox.connect_port(port))
    sandbox = await work.sandbox.lend()
    return await _carried(await sandbox.connect_port(port))


async def _carried(connection: PortConnection) -> socket.socket:
    """The caller's end of a pair of sockets, between whose other one and the connection all bytes are carried."""
    own, callers = socket.socketpair()
    task = asyncio.create_task(_carry(connection, own), name="port-connection")
    _carrying.add(task)
    task.add_done_callback(_carrying.discard)
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
