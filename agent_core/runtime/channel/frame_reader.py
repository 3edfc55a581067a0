"""Frames of a runner, as they arrive: nothing is kept that is not allowed, and nothing large is parsed on the loop."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NoReturn, TypeVar

from agent_core.errors import SandboxError
from agent_core.runtime.channel.answer_forms import is_number
from runtime_images.runner import wire


class ChannelClosedError(SandboxError):
    """The stream to the runner has ended (`replaced`: another has it); what became of the request is unknown."""

    def __init__(self, reason: str, *, replaced: bool = False) -> None:
        super().__init__(f"The stream to the sandbox has ended: {reason}.", code="channel_closed")
        self.reason = reason
        self.replaced = replaced

    def again(self) -> ChannelClosedError:
        """The same for one more request: an error that is raised twice keeps the frames of both."""
        return ChannelClosedError(self.reason, replaced=self.replaced)


def protocol_error(problem: str) -> SandboxError:
    """The error for what no runner of ours sends; the stream is over with it."""
    return SandboxError(f"The sandbox sent something that is no answer ({problem}).", code="protocol")


T = TypeVar("T")

library: Any = json.decoder
scanner: Any = importlib.import_module("json.scanner")

READ_SIZE: Final = 256 * 1024
LARGE: Final = 256 * 1024
"""Bytes of JSON from which on a frame is parsed in a thread, by a parser that lets others run meanwhile."""
MAX_VALUES: Final = 500_000
TURN_SECONDS: Final = 0.005
_LENGTH: Final = 4
_FEW: Final = 200_000

_parsers = ThreadPoolExecutor(max_workers=2, thread_name_prefix="large-frames")


class FrameReader:
    """Reads one stream, until the first error; `on_bytes` is called whenever bytes have come.

    Both methods raise `ChannelClosedError` when the stream has ended, and `SandboxError` (``protocol``).
    """

    def __init__(self, reader: asyncio.StreamReader, on_bytes: Callable[[], None]) -> None:
        self._reader = reader
        self._on_bytes = on_bytes
        self._buffer = bytearray()
        self._start = 0
        self._turn_began = 0.0

    async def message(self, most: Callable[[], int], least: int) -> tuple[wire.FrameMessage, int]:
        """The JSON object of the next frame, and its length: `least` bytes are allowed anyway, `most` tells of more."""
        loop = asyncio.get_running_loop()
        if self._start and loop.time() - self._turn_began > TURN_SECONDS:
            await asyncio.sleep(0)  # many small frames that came together are not to hold up everybody else
            self._turn_began = loop.time()
        length = int.from_bytes(await self._take(_LENGTH, is_inside=False))
        if length > least and length > (limit := most()):
            raise protocol_error(f"a frame of {length} bytes where at most {max(least, limit)} were asked for")
        body = await self._take(length)
        try:
            if length <= LARGE:
                value = _DECODER.decode(body.decode("utf-8"))
            else:
                value = await in_thread(lambda: _decoded(body))
        except (ValueError, RecursionError) as error:
            raise protocol_error(f"a frame that is no valid JSON: {error or 'nested too deeply'}") from error
        if not isinstance(value, dict):
            raise protocol_error(f"a frame that holds a JSON {type(value).__name__}, not an object")
        return value, length

    async def blob(self, message: wire.FrameMessage, most: int) -> bytes | None:
        """The attachment of this message, at most so many bytes; None where it announces none."""
        if "blob" not in message:
            return None
        length = message["blob"]
        if not is_number(length) or not 0 <= length <= most:
            raise protocol_error(f"an attachment of {str(length)[:20]} bytes where at most {most} were asked for")
        return await self._take(length)

    async def _take(self, length: int, *, is_inside: bool = True) -> bytes:
        while len(self._buffer) - self._start < length:
            try:
                data = await self._reader.read(READ_SIZE)
            except OSError as error:
                raise ChannelClosedError(str(error) or type(error).__name__) from error
            if not data:
                truncated = " in the middle of an answer" if is_inside or len(self._buffer) > self._start else ""
                raise ChannelClosedError(f"the other side closed it{truncated}")
            self._on_bytes()
            self._turn_began = asyncio.get_running_loop().time()
            if self._start:
                del self._buffer[: self._start]
                self._start = 0
            self._buffer += data
        end = self._start + length
        with memoryview(self._buffer) as view:
            taken = bytes(view[self._start : end])
        self._start = end
        if end == len(self._buffer):
            self._buffer.clear()
            self._start = 0
        return taken


async def in_thread(work: Callable[[], T]) -> T:
    """Do something slow in one of a few threads."""
    return await asyncio.get_running_loop().run_in_executor(_parsers, work)


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_refused)


def _decoded(body: bytes) -> Any:
    """Parse a large document: one of many values in Python, since the C parser lets no other thread have its turn."""
    escapes = body.count(b"\\")
    if escapes + sum(map(body.count, (b"[", b"{", b",", b":"))) <= _FEW:
        return _DECODER.decode(body.decode("utf-8"))
    left = MAX_VALUES

    def counted(scan: Any) -> Any:
        def scan_one(string: str, index: int) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise ValueError(f"it holds more than {MAX_VALUES} values")
            return scan(string, index)

        return scan_one

    parser: Any = json.JSONDecoder(parse_constant=_refused)
    parser.parse_array = lambda place, scan: library.JSONArray(place, counted(scan))
    parser.parse_object = lambda place, strict, scan, *rest: library.JSONObject(place, strict, counted(scan), *rest)
    if escapes > _FEW:
        parser.parse_string = library.py_scanstring
    parser.scan_once = scanner.py_make_scanner(parser)
    return parser.decode(body.decode("utf-8"))
