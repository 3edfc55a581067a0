"""The server's event loop: uvloop's, with look-ups of names in threads of our own, and its way to accept TLS."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

import uvloop

from agent_core.runtime.call_threads import CallThreads
from server.http.tls_listener import TlsListener

LOOKUP_THREADS: Final = 256
"""Made when they are needed: as many names may hang at once before another one has to wait."""

_Question = tuple[Any, ...]


class _LookUp:
    def __init__(self, call: Future[Any]) -> None:
        self._call = call
        self.answer = asyncio.wrap_future(call)
        self.waiting = 0

    def leave(self) -> None:
        self.waiting -= 1
        if not self.waiting and not self._call.running():  # what runs can serve the next who asks
            self.answer.cancel()


class ServerLoop(uvloop.Loop):
    """Looks each name up once at a time, whoever asks, and beside the others; an address needs no thread.

    uvloop's own has four threads, of which two look names up, also for each connection to an address: two names that
    nobody answers for would keep everybody's models waiting.
    """

    def __init__(self) -> None:
        super().__init__()
        self._threads = CallThreads(LOOKUP_THREADS, "names")
        self._look_ups: dict[_Question, _LookUp] = {}

    async def getaddrinfo(
        self,
        host: Any,
        port: Any,
        *,
        family: int = 0,
        type: int = 0,  # noqa: A002 - asyncio's name
        proto: int = 0,
        flags: int = 0,
    ) -> Any:
        """As `socket.getaddrinfo`; raises `socket.gaierror`."""
        question = (host, port, family, type, proto, flags)
        try:
            return socket.getaddrinfo(host, port, family, type, proto, flags | socket.AI_NUMERICHOST)
        except socket.gaierror:
            pass  # a name
        look_up = self._look_ups.get(question)
        if look_up is None or look_up.answer.done():
            look_up = self._look_ups[question] = _LookUp(self._threads.submit(partial(socket.getaddrinfo, *question)))
            look_up.answer.add_done_callback(partial(self._forget, question, look_up))
        look_up.waiting += 1
        try:
            return await asyncio.shield(look_up.answer)
        finally:
            look_up.leave()

    async def create_server(
        self,
        protocol_factory: Any,
        *address: Any,
        sock: socket.socket | None = None,
        ssl: Any = None,
        **options: Any,
    ) -> Any:
        """As asyncio's; over TLS a listening socket is served by `TlsListener`."""
        if ssl is None or sock is None:
            return await super().create_server(protocol_factory, *address, sock=sock, ssl=ssl, **options)
        return TlsListener(self, protocol_factory, sock, ssl)

    def _forget(self, question: _Question, look_up: _LookUp, _answer: object) -> None:
        if self._look_ups.get(question) is look_up:
            del self._look_ups[question]

    def close(self) -> None:
        self._threads.close()
        super().close()
