"""Connections to ports and programs of a sandbox, as frames of the one stream to its runner: the server's end.

No port is published, so they work where the sandbox has no network and where its host is another one. What is received
is bounded by a window for each connection, and what is sent takes turns in small pieces: neither delays a command.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from agent_core.errors import SandboxError, ToolError
from agent_core.runtime.channel.answer_forms import SMALL, is_number, without_halves
from agent_core.runtime.channel.frame_reader import protocol_error
from agent_core.tools.context import SandboxAccess
from runtime_images.runner import wire

MAX_TUNNELS = 240
OPEN_SECONDS = 10.0
MAX_WORDS = 2_000
MAX_CLOSED = 1024
MAX_LATE = 64


class PortError(SandboxError):
    """A connection to a port failed: ``refused``, ``reset``, ``busy``, or ``unsupported`` by an older runner."""


class PortConnection:
    """One connection to a port or a program. One task may read while another one writes.

    `read` (empty at the end) and `write` raise `SandboxError` when the connection or the sandbox is gone. `last_words`,
    known at the end of reading, is the end of a program's standard error.
    """

    def __init__(self, tunnels: Tunnels, number: int) -> None:
        self._tunnels = tunnels
        self._number = number
        self._received: deque[bytes] = deque()
        self._granted = wire.TUNNEL_WINDOW  # what may still come
        self._read = 0  # of that, what was read and is not granted anew yet
        self._credit = wire.TUNNEL_WINDOW  # what may still be sent
        self._is_open = False
        self._at_end = False
        self._sent_end = False
        self._error: SandboxError | None = None
        self.last_words = ""
        self._changed = asyncio.Event()

    async def read(self) -> bytes:
        while not self._received:
            if self._error is not None:
                raise self._error
            if self._at_end:
                return b""
            await self._change()
        data = self._received.popleft()
        self._read += len(data)
        if self._read >= wire.TUNNEL_WINDOW // 2 and not self._at_end and self._error is None:
            self._granted += self._read
            self._tunnels.post(self._number, {"credit": self._read})
            self._read = 0
        return data

    async def write(self, data: bytes) -> None:
        """Send; returns when the bytes are on their way, so that a port that does not read holds its writer up."""
        view = memoryview(data)
        while view:
            while self._credit <= 0 and self._error is None:
                await self._change()
            if self._error is not None:
                raise self._error
            piece = view[: min(wire.TUNNEL_CHUNK, self._credit)]
            self._credit -= len(piece)
            view = view[len(piece) :]
            await self._tunnels.send(self._number, bytes(piece))

    def end(self) -> None:
        if not self._sent_end and self._error is None:
            self._sent_end = True
            self._tunnels.post(self._number, {"end": True})
            self._forget_if_over()

    def close(self) -> None:
        """Let go of it at once; may be called at any time, more than once."""
        if self._error is None:
            self._error = PortError("The connection to the port was closed.", code="reset")
            if not (self._at_end and self._sent_end):
                self._tunnels.post(self._number, {"reset": True})
        self._tunnels.forget(self._number, self._granted)
        self._received.clear()
        self._changed.set()

    async def opened(self) -> None:
        while not self._is_open:
            if self._error is not None:
                raise self._error
            await self._change()

    def take(self, message: Mapping[str, Any], blob: bytes | None) -> None:
        error, credit = message.get("error"), message.get("credit")
        if blob is not None:
            if not blob:
                raise protocol_error("a frame of a connection without data")
            self._granted -= len(blob)
            if self._granted < 0 or self._at_end:
                self.close()
                self._error = PortError("The sandbox sent more than it was granted.", code="reset")
            else:
                self._received.append(blob)
        elif isinstance(error, dict):
            code, text = error.get("code"), error.get("message")
            code = code[:100] if isinstance(code, str) else "reset"
            words = without_halves(text[:500]) if isinstance(text, str) and text else "it broke off"
            self.fail(PortError(f"The connection to the sandbox failed: {words}.", code=code))
            self._tunnels.ended(self._number)
        elif message.get("opened") is True and not self._is_open:
            self._is_open = True
        elif message.get("end") is True and not self._at_end:
            self._at_end = True
            words = message.get("last_words", "")
            self.last_words = without_halves(words[:MAX_WORDS]) if isinstance(words, str) else ""
            self._forget_if_over()
        elif isinstance(credit, int) and 0 < credit <= wire.TUNNEL_WINDOW - self._credit:
            self._credit += credit
        else:
            raise protocol_error("a frame of a connection that has no known form")
        self._changed.set()

    def fail(self, error: SandboxError) -> None:
        if self._error is None:
            self._error = error
        self._tunnels.forget(self._number, self._granted)
        self._changed.set()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _forget_if_over(self) -> None:
        if self._at_end and self._sent_end:
            self._tunnels.forget(self._number, self._granted)


class _Late:
    __slots__ = ("_frames", "_granted")

    def __init__(self, granted: int) -> None:
        self._granted = granted
        self._frames = MAX_LATE

    def take(self, blob: bytes | None) -> None:
        self._granted -= len(blob or b"")
        self._frames -= not blob
        if self._granted < 0 or self._frames < 0:
            raise protocol_error("more of a connection that is over than can have been under way")


class Tunnels:
    """The connections over one stream: `post` puts bytes on it, `drain` waits until it takes more."""

    def __init__(self, post: Callable[[bytes], None], drain: Callable[[], Awaitable[None]]) -> None:
        self._post = post
        self._drain = drain
        self._numbers = itertools.count(1)
        self._open: dict[int, PortConnection] = {}
        self._closed: dict[int, _Late] = {}
        self._turn = asyncio.Lock()

    async def open(self, order: Mapping[str, Any]) -> PortConnection:
        """Connect to a ``port``, or start a ``program`` that ends with the connection, which is its input and output.

        A program has ``command`` (a list), and may have ``env`` (variables beside the sandbox's own) and ``cwd``.
        Raises `PortError` (also ``not_found``, ``failed``), or `SandboxError` when the stream has ended.
        """
        if len(self._open) >= MAX_TUNNELS:
            raise PortError(f"There are {MAX_TUNNELS} connections to this sandbox already.", code="busy")
        number = next(self._numbers)
        connection = self._open[number] = PortConnection(self, number)
        self.post(number, {"open": order})
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                await connection.opened()
        except TimeoutError:
            connection.close()
            what = f"Port {order['port']}" if "port" in order else "The program"
            raise PortError(f"{what} did not answer within {OPEN_SECONDS:g} s.", code="refused") from None
        except BaseException:
            connection.close()
            raise
        return connection

    def most_blob(self, length: int) -> int:
        if length > SMALL:
            raise protocol_error(f"a frame of {length} bytes for a connection")
        return wire.TUNNEL_WINDOW

    def dispatch(self, message: wire.FrameMessage, blob: bytes | None) -> None:
        """Hand a frame to its connection. For one that was closed here a few may still come."""
        number = message["stream"]
        if is_number(number) and number in self._open:
            self._open[number].take(message, blob)
        elif is_number(number) and number in self._closed:
            self._closed[number].take(blob)
            if "error" in message:
                self.ended(number)
        else:
            raise protocol_error("a frame of a connection that nobody has asked for")

    def fail(self, error: SandboxError) -> None:
        for connection in list(self._open.values()):
            connection.fail(error)

    def forget(self, number: int, granted: int) -> None:
        """Close a connection here; of what still comes for it at most so many bytes are ignored."""
        if self._open.pop(number, None) is not None:
            while len(self._closed) >= MAX_CLOSED:
                del self._closed[next(iter(self._closed))]
            self._closed[number] = _Late(granted)

    def ended(self, number: int) -> None:
        self._closed.pop(number, None)

    def post(self, number: int, message: Mapping[str, Any]) -> None:
        self._post(wire.encode({"stream": number, **message}))

    async def send(self, number: int, data: bytes) -> None:
        """Send data after those before them: only so much waits before the next request."""
        async with self._turn:
            if number in self._open:
                self._post(wire.encode({"stream": number}, data))
                await self._drain()


LIST_SECONDS = 10.0


class OpenPort(NamedTuple):
    """A TCP port that something in the sandbox listens on, and the program that does, where that can be seen."""

    port: int
    addresses: tuple[str, ...] = ()
    pid: int | None = None
    process: str | None = None
    command: str | None = None


async def listening(sandbox: SandboxAccess) -> list[OpenPort]:
    """The ports of a sandbox, lowest first; none for an older runner."""
    try:
        reply = await sandbox.request("ports.list", {}, limit_seconds=LIST_SECONDS)
    except ToolError:
        return []
    return [OpenPort(**{**one, "addresses": tuple(one["addresses"])}) for one in reply.result["ports"]]
