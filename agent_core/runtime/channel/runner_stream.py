"""The transport end of an attachment: bytes from a runner into a reader, and the moment when the first ones arrive."""

from __future__ import annotations

import asyncio

from agent_core.runtime.sandbox import Attachment

READ_LIMIT = 256 * 1024
_OPENING = 5
_LONGEST_GREETING = 128 * 1024
_STRAY_KEPT = 2000


class RunnerStream(asyncio.StreamReaderProtocol):
    """Feeds a reader, and tells when the runner has said its first word or the stream has ended before.

    Providers use `first_word` to know that a sandbox is READY without consuming anything. What does not begin like a
    frame is no word of a runner (an engine writes its own errors there); the beginning of it is kept in `stray`, and in
    `errors` what came beside the stream, where it has a way for that.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.reader = asyncio.StreamReader(limit=READ_LIMIT, loop=loop)
        super().__init__(self.reader, loop=loop)
        self._first: asyncio.Future[bool] = loop.create_future()
        self._opening = bytearray()
        self.stray = bytearray()
        self.errors = bytearray()
        self.ended = False

    def data_received(self, data: bytes) -> None:
        self.deliver(data)

    def deliver(self, data: bytes) -> None:
        """Pass on bytes that the runner wrote."""
        if not self._first.done():
            self._opening += data
            if len(self._opening) < _OPENING:
                return
            data = bytes(self._opening)
            spoke = int.from_bytes(data[:4], "big") <= _LONGEST_GREETING and data[4:5] == b"{"
            self._settle(spoke)
        if self._first.result():
            super().data_received(data)
        else:
            self.stray += data[: _STRAY_KEPT - len(self.stray)]

    def eof_received(self) -> bool | None:
        self.ended = True
        self._settle(False)
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True
        self._settle(False)
        super().connection_lost(exc)

    async def first_word(self) -> bool:
        """Wait until the runner has written something (True) or the stream has ended without (False)."""
        return await asyncio.shield(self._first)

    def attachment(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> Attachment:
        """The pair that a channel works with."""
        return Attachment(self.reader, asyncio.StreamWriter(transport, self, self.reader, loop))

    def _settle(self, spoke: bool) -> None:
        if not self._first.done():
            self._first.set_result(spoke)
            if not spoke and not self.stray:
                self.stray += self._opening
            self._opening.clear()
