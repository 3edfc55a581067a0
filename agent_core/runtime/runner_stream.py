"""The transport end of an attachment: bytes from a runner into a reader, and the moment when the first ones arrive."""

from __future__ import annotations

import asyncio

from agent_core.runtime.sandbox import Attachment

READ_LIMIT = 256 * 1024


class RunnerStream(asyncio.StreamReaderProtocol):
    """Feeds a reader, and tells when the runner has said its first word or the stream has ended before.

    Providers use `first_word` to know that a sandbox is READY without consuming anything.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.reader = asyncio.StreamReader(limit=READ_LIMIT, loop=loop)
        super().__init__(self.reader, loop=loop)
        self._first: asyncio.Future[bool] = loop.create_future()
        self.ended = False

    def data_received(self, data: bytes) -> None:
        self.deliver(data)

    def deliver(self, data: bytes) -> None:
        """Pass on bytes that the runner wrote."""
        if data:
            self._settle(True)
            super().data_received(data)

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
