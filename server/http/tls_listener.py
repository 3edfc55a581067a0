"""`TlsListener`: accepts connections for TLS, and tells who speaks plain HTTP what to do instead."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final

_log = logging.getLogger(__name__)

HANDSHAKE_SECONDS: Final = 10.0
"""From the opening of a connection to the end of its handshake."""
SHUTDOWN_SECONDS: Final = 5.0
MAX_SHAKING: Final = 4096
"""Connections whose handshake is not done; further ones wait in the system's queue."""

_AT_ONCE: Final = 32
_PAUSE_SECONDS: Final = 1.0
_LINGER_SECONDS: Final = 1.0
_HANDSHAKE: Final = 0x16
_NO_ROOM: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_MAX_SAID: Final = 64 * 1024

_PLAIN_BODY: Final = b"This port speaks HTTPS, and what came is plain HTTP: write https:// in the address.\n"
_PLAIN_ANSWER: Final = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n"
    b"connection: close\r\n\r\n" % len(_PLAIN_BODY)
) + _PLAIN_BODY


class TlsListener:
    """Serves what a listening socket accepts with the protocols of `make`, over TLS with `context`.

    A connection that says nothing, or whose handshake fails, ends without a word in the log: strangers cause that.
    It has what uvicorn uses of an `asyncio.Server`.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        make: Callable[[], asyncio.BaseProtocol],
        listener: socket.socket,
        context: ssl.SSLContext,
    ) -> None:
        self._loop = loop
        self._make = make
        self._listener = listener
        self._context = context
        self._shaking: set[asyncio.Task[None]] = set()
        self._is_reading = False
        self._is_closed = False
        self._listen()

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        return (self._listener,)

    def close(self) -> None:
        """Accept nothing more, and end handshakes; connections go on."""
        self._is_closed = True
        self._rest()
        for task in self._shaking:
            task.cancel()

    async def wait_closed(self) -> None:
        if self._shaking:
            await asyncio.wait(set(self._shaking))

    def _listen(self) -> None:
        if not (self._is_closed or self._is_reading) and len(self._shaking) < MAX_SHAKING:
            self._is_reading = True
            self._loop.add_reader(self._listener, self._accept)

    def _rest(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._listener)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, _address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    raise
                self._rest()
                self._loop.call_later(_PAUSE_SECONDS, self._listen)
                return
            connection.setblocking(False)
            task = self._loop.create_task(self._begin(connection), name="TLS handshake")
            self._shaking.add(task)
            task.add_done_callback(self._begun)
        if len(self._shaking) >= MAX_SHAKING:
            self._rest()

    def _begun(self, task: asyncio.Task[None]) -> None:
        self._shaking.discard(task)
        self._listen()

    async def _begin(self, connection: socket.socket) -> None:
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                first = await self._first_byte(connection)
                if first == _HANDSHAKE:
                    await self._loop.connect_accepted_socket(
                        self._make, connection, ssl=self._context, ssl_shutdown_timeout=SHUTDOWN_SECONDS
                    )
                    return
                if first is not None:
                    await self._tell(connection)
        except (OSError, TimeoutError, ssl.SSLError) as error:
            _log.debug("a connection ended before its TLS handshake was done: %s", error or type(error).__name__)
        except BaseException:
            connection.close()
            raise
        connection.close()

    async def _first_byte(self, connection: socket.socket) -> int | None:
        """What the client begins with, which stays to be read; None where it has gone."""
        came: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(connection, lambda: None if came.done() else came.set_result(None))
        try:
            await came
        finally:
            self._loop.remove_reader(connection)
        found = connection.recv(1, socket.MSG_PEEK)
        return found[0] if found else None

    async def _tell(self, connection: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            connection.recv(_MAX_SAID)  # what is left unread would cut the answer short
        connection.send(_PLAIN_ANSWER)
        connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LINGER_SECONDS):
                while await self._loop.sock_recv(connection, _MAX_SAID):
                    pass
