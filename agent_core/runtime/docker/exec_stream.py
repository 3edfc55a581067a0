"""A Docker exec as a byte stream: the upgraded connection of its start, freed of the engine's 8-byte headers.

The engine answers the start of an exec with an HTTP upgrade; from then on the connection carries the standard
input of the process one way and, the other way, pieces of its output, each behind a header of one byte for the stream
(1 output, 2 errors), three unused ones, and a big-endian length. The connection is made here and not by the SDK:
that one may have read the first bytes of the stream together with the answer, and its TLS sockets cannot be handed on.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import struct
from typing import NamedTuple

from agent_core.errors import SandboxError
from agent_core.runtime.channel.runner_stream import RunnerStream

_HEADER = struct.Struct(">BxxxL")
_STDOUT = 1
_MAX_HEAD = 16 * 1024
_ERRORS_KEPT = 4096


class EngineAddress(NamedTuple):
    """Where an engine listens: a socket file, or host and port with or without TLS."""

    socket_path: str | None = None
    host: str = ""
    port: int = 0
    tls: ssl.SSLContext | None = None


class Demultiplexer:
    """Takes the headers out of an exec's stream: no I/O; keeps at most one partial header."""

    def __init__(self) -> None:
        self._header = bytearray()
        self._stream = 0
        self._left = 0

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """The next bytes of the connection; returns ``(stream, bytes)`` pieces in order, as they are complete."""
        pieces: list[tuple[int, bytes]] = []
        position = 0
        while position < len(data):
            if self._left:
                piece = data[position : position + self._left]
                position += len(piece)
                self._left -= len(piece)
                pieces.append((self._stream, piece))
                continue
            wanted = _HEADER.size - len(self._header)
            self._header += data[position : position + wanted]
            position += wanted
            if len(self._header) == _HEADER.size:
                self._stream, self._left = _HEADER.unpack(self._header)
                self._header.clear()
        return pieces


class ExecStream(RunnerStream):
    """The connection of one exec: the engine's answer first, then the output of the process.

    `errors` keeps the last few kilobytes that the process wrote to its standard error.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._head = bytearray()
        self._demultiplexer = Demultiplexer()
        self.upgraded: asyncio.Future[tuple[int, str]] = loop.create_future()
        self._passing = False

    def data_received(self, data: bytes) -> None:
        if not self._passing:
            data = self._read_head(data)
        for stream, piece in self._demultiplexer.feed(data):
            if stream == _STDOUT:
                self.deliver(piece)
            else:
                self.errors += piece
                del self.errors[:-_ERRORS_KEPT]

    def eof_received(self) -> bool | None:
        self._hung_up()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._hung_up()
        super().connection_lost(exc)

    def _hung_up(self) -> None:
        if not self.upgraded.done():
            self.upgraded.set_result((0, "the engine closed the connection"))

    def _read_head(self, data: bytes) -> bytes:
        self._head += data
        head, found, rest = bytes(self._head).partition(b"\r\n\r\n")
        if not found and len(head) < _MAX_HEAD:
            return b""
        status_line = head.split(b"\r\n", 1)[0].split()
        status = int(status_line[1]) if len(status_line) > 1 and status_line[1].isdigit() else 0
        if not self.upgraded.done():
            self.upgraded.set_result(
                (status, rest.decode("utf-8", "replace")[:500] if status not in (101, 200) else "")
            )
        self._passing = status in (101, 200)
        self._head.clear()
        return rest if self._passing else b""


async def open_exec(address: EngineAddress, path: str, limit: float) -> tuple[ExecStream, asyncio.Transport]:
    """Start an exec that was created with standard input, output and errors attached.

    Args:
        address: the engine.
        path: path of the exec's start, with the API version (``/v1.41/exec/<id>/start``).
        limit: seconds until the engine must have answered.

    Raises:
        SandboxError: ``engine_unavailable``, or ``exec_refused`` with the engine's words.
    """
    loop = asyncio.get_running_loop()
    stream = ExecStream(loop)
    transport: asyncio.Transport | None = None
    try:
        async with asyncio.timeout(limit):
            if address.socket_path is not None:
                transport, _ = await loop.create_unix_connection(lambda: stream, address.socket_path)
            else:
                transport, _ = await loop.create_connection(lambda: stream, address.host, address.port, ssl=address.tls)
            body = json.dumps({"Detach": False, "Tty": False}).encode()
            transport.write(
                f"POST {path} HTTP/1.1\r\nHost: {address.host or 'docker'}\r\nContent-Type: application/json\r\n"
                f"Connection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
            status, words = await asyncio.shield(stream.upgraded)
    except (OSError, TimeoutError) as error:
        if transport is not None:
            transport.abort()
        reason = str(error) or f"no answer within {limit:g} s"
        raise SandboxError(
            f"The Docker engine did not open a stream to the sandbox: {reason}.", code="engine_unavailable"
        ) from error
    except BaseException:
        if transport is not None:
            transport.abort()
        raise
    if status not in (101, 200):
        transport.abort()
        raise SandboxError(
            f"The Docker engine refused a stream to the sandbox ({status}): {words.strip()}", code="exec_refused"
        )
    return stream, transport
