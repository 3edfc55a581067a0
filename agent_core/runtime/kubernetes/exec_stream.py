"""The stream of an exec: the channels of Kubernetes' WebSocket protocol, as what a runner's stream is read from.

Each message is of one channel, which its first byte names: 0 what is written, 1 and 2 what the command writes, 3 how it
has ended. Version 5 says besides which channel has ended (255).
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from contextlib import suppress
from typing import Any, Final

from agent_core.runtime.channel.runner_stream import RunnerStream

PROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")

_STDIN, _STDOUT, _STDERR, _STATUS, _END = 0, 1, 2, 3, 255
_PIECE: Final = 64 * 1024
_HIGH, _LOW = 256 * 1024, 64 * 1024
_MOST_ERRORS: Final = 4096
_TEXT, _BINARY = 1, 2


class PodStream(RunnerStream):
    """What a command in a container writes; `errors` keeps the last kilobytes, `exit_code` is known at its end."""

    exit_code: int | None = None

    def received(self, message: bytes | str) -> tuple[int, bytes]:
        """The channel of a message and what is on it; what is not for others is taken note of."""
        data = message.encode() if isinstance(message, str) else message
        channel, piece = (data[0], data[1:]) if data else (_STDOUT, b"")
        if channel == _STATUS and piece:
            self.exit_code = _exit_code(piece, self.errors)
        elif channel == _STDERR:
            self.errors += piece
        del self.errors[:-_MOST_ERRORS]
        return channel, piece


def _exit_code(status: bytes, errors: bytearray) -> int:
    """What the status at the end of a command says; 255 where it did not even begin, and `errors` get why."""
    try:
        found = json.loads(status)
        if found.get("status") == "Success":
            return 0
        causes = (found.get("details") or {}).get("causes") or ()
        code = next((one.get("message") for one in causes if one.get("reason") == "ExitCode"), None)
        if code is not None:
            return int(code)
        errors += str(found.get("message", "")).encode()
    except (ValueError, TypeError, AttributeError):
        errors += status[:_MOST_ERRORS]
    return 255


class PodTransport(asyncio.Transport):
    """The other side of an `PodStream`; its `task` ends with the stream, and lets go of the WebSocket."""

    def __init__(self, socket: Any, stream: PodStream) -> None:
        super().__init__()
        self._socket = socket
        self._stream = stream
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._more = asyncio.Event()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._is_paused = False
        self._is_closing = False
        self._no_more_input = False
        self._aborted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        stream.connection_made(self)
        self.task = asyncio.get_running_loop().create_task(self._carry(), name="exec-stream")

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing or not data:
            return
        self._waiting.append(bytes(data))
        self._size += len(data)
        self._more.set()
        if self._size > _HIGH and not self._is_paused:
            self._is_paused = True
            self._stream.pause_writing()

    def get_write_buffer_size(self) -> int:
        return self._size

    def can_write_eof(self) -> bool:
        return bool(self._socket.protocol == PROTOCOLS[0])

    def write_eof(self) -> None:
        self._no_more_input = True
        self._more.set()

    def pause_reading(self) -> None:
        self._may_read.clear()

    def resume_reading(self) -> None:
        self._may_read.set()

    def is_reading(self) -> bool:
        return self._may_read.is_set()

    def is_closing(self) -> bool:
        return self._is_closing

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def close(self) -> None:
        """What was written is sent first."""
        self._is_closing = True
        self._more.set()

    def abort(self) -> None:
        self._is_closing = True
        if not self._aborted.done():
            self._aborted.set_result(None)

    async def _carry(self) -> None:
        sending = asyncio.get_running_loop().create_task(self._send(), name="exec-input")
        receiving = asyncio.get_running_loop().create_task(self._receive(), name="exec-output")
        problem: Exception | None = None
        try:
            await asyncio.wait({sending, receiving, self._aborted}, return_when=asyncio.FIRST_COMPLETED)
            problem = _error_of(sending) or _error_of(receiving)
        finally:
            self._is_closing = True
            self._aborted.cancel()
            for task in (sending, receiving):
                task.cancel()
            # Who reads is told at once; the WebSocket's own end takes as long as its other side wishes.
            self._stream.connection_lost(problem)
            await asyncio.wait({sending, receiving})
            with suppress(Exception):
                await self._socket.close()

    async def _send(self) -> None:
        """Ends with the transport's closing, once all is sent."""
        while True:
            while self._waiting:
                data = self._waiting.popleft()
                for start in range(0, len(data), _PIECE):
                    await self._socket.send_bytes(bytes([_STDIN]) + data[start : start + _PIECE])
                self._size -= len(data)
                if self._is_paused and self._size <= _LOW:
                    self._is_paused = False
                    self._stream.resume_writing()
            if self._is_closing:
                return
            if self._no_more_input and self.can_write_eof():
                self._no_more_input = False
                await self._socket.send_bytes(bytes([_END, _STDIN]))
            await self._more.wait()
            self._more.clear()

    async def _receive(self) -> None:
        """Ends with the command."""
        while True:
            await self._may_read.wait()
            message = await self._socket.receive()
            if message.type not in (_TEXT, _BINARY):
                break
            channel, piece = self._stream.received(message.data)
            if channel == _STDOUT and piece:
                self._stream.data_received(piece)
            if self._stream.exit_code is not None or (channel == _END and piece[:1] == bytes([_STDOUT])):
                break
        self._stream.eof_received()


def _error_of(task: asyncio.Task[None]) -> Exception | None:
    error = task.exception() if task.done() and not task.cancelled() else None
    return error if isinstance(error, Exception) else None
