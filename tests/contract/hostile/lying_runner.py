"""A runner that was taken over: it greets like ours, and then sends what a test makes up, over a real stream."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent_core.runtime.sandbox import Attachment
from runtime_images.runner import wire

Lie = Callable[[Mapping[str, Any]], Iterable[bytes] | AsyncIterator[bytes]]
"""The bytes that answer a request."""


def frame(message: object, blob: bytes = b"") -> bytes:
    """A frame with any JSON in it, checked by nothing; `blob` is put behind it."""
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    return struct.pack(">I", len(body)) + body + blob


def honest(request: Mapping[str, Any], result: object, blob: bytes | None = None) -> bytes:
    """The answer with this result."""
    more = {} if blob is None else {"blob": len(blob)}
    return frame({"id": request["id"], "ok": True, "result": result, **more}, blob or b"")


@dataclass(eq=False)
class LyingRunner:
    """Answers every request with what `lie` makes of it; a stream that the server ends is remembered.

    Attributes:
        lie: gives the bytes; an operation that is none of the test's is answered with an empty result.
        hello: changes to the greeting.
        asked: the requests, in order.
        sent: bytes that the server's end has taken or that wait on their way there.
        ended: streams that the server has closed.
        streams: streams that were opened.
    """

    lie: Lie
    hello: dict[str, Any] = field(default_factory=dict)
    asked: list[Mapping[str, Any]] = field(default_factory=list)
    sent: int = 0
    ended: int = 0
    streams: int = 0
    mute: bool = False

    def __post_init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def connect(self) -> Attachment:
        """A new stream to this runner."""
        ours, theirs = socket.socketpair()
        task = asyncio.create_task(self._serve(ours), name="lying-runner")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.streams += 1
        return Attachment(*await asyncio.open_connection(sock=theirs))

    async def restart(self, *, keep_journal: bool = True) -> None:
        """End all streams."""
        await self.close()

    async def close(self) -> None:
        """End all streams."""
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _serve(self, ours: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=ours)
        answering: set[asyncio.Task[None]] = set()
        try:
            greeting = {"protocol": wire.PROTOCOL, "boot": secrets.token_hex(8), "tunnels": True, "programs": True}
            writer.write(frame({"hello": {**greeting, **self.hello}}))
            decoder = wire.Decoder()
            while data := await reader.read(65536):
                for one in decoder.feed(data):
                    self.asked.append(one.message)
                    answering.add(asyncio.create_task(self._answer(one.message, writer), name="lie"))
            self.ended += 1
        except OSError:
            self.ended += 1
        finally:
            writer.transport.abort()
            for task in answering:
                task.cancel()
            if answering:
                await asyncio.wait(answering)

    async def _answer(self, request: Mapping[str, Any], writer: asyncio.StreamWriter) -> None:
        if request.get("op") in ("journal.ack", "cancel", "transfer.drop"):
            return
        lies = self.lie(request)
        with contextlib.suppress(OSError):
            if isinstance(lies, AsyncIterator):
                async for piece in lies:
                    await self._send(piece, writer)
            else:
                for piece in lies:
                    await self._send(piece, writer)

    async def _send(self, piece: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(piece)
        await writer.drain()
        self.sent += len(piece)
