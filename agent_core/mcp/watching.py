"""A transport of the client library whose stream is watched: its user is told when the other side ends it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

ENDED = "it ended the connection"


class Watched:
    """Enters and leaves the transport that it is given; ``on_end(reason)`` is called when its messages end."""

    def __init__(self, transport: Any, on_end: Callable[[str], None]) -> None:
        self._transport = transport
        self._on_end = on_end

    async def __aenter__(self) -> Any:
        incoming, outgoing = await self._transport.__aenter__()
        return _Incoming(incoming, self._on_end), outgoing

    async def __aexit__(self, *details: Any) -> Any:
        return await self._transport.__aexit__(*details)


class _Incoming:
    def __init__(self, stream: Any, on_end: Callable[[str], None]) -> None:
        self._stream = stream
        self._on_end = on_end

    @property
    def last_context(self) -> Any:
        """The context in which the last message was sent; the library asks for it."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        return await self._stream.receive()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> _Incoming:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            self._on_end(ENDED)
            raise

    async def __aenter__(self) -> _Incoming:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *details: Any) -> Any:
        return await self._stream.__aexit__(*details)
