"""Frames of the stream between server and runner: encoding, and decoding without I/O.

A frame is a four-byte big-endian length, that many bytes of UTF-8 JSON holding one object, and, when that object has
the key ``blob`` (an integer), so many raw bytes after it. Both ends use this module.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Dict, List, NamedTuple, Optional

PROTOCOL = 1
MAX_JSON = 32 * 1024 * 1024
MAX_BLOB = 64 * 1024 * 1024
TUNNEL_WINDOW = 128 * 1024
"""Bytes that either side of a tunnel may send before it is granted more."""
TUNNEL_CHUNK = 32 * 1024
"""Most data bytes of one frame of a tunnel."""

FrameMessage = Dict[str, Any]

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_LENGTH = struct.Struct(">I")
_COMPACT_AFTER = 256 * 1024


class ProtocolError(Exception):
    """The bytes are not a frame, or a frame is over its limit: the connection cannot go on."""


class Frame(NamedTuple):
    """One decoded frame."""

    message: FrameMessage
    blob: Optional[bytes] = None


def encode(message: FrameMessage, blob: Optional[bytes] = None) -> bytes:
    """Return the bytes of one frame; callers leave the ``blob`` key to it.

    Raises `ProtocolError` when object or blob is over its limit, or the object cannot be written as JSON.
    """
    if blob is not None:
        if len(blob) > MAX_BLOB:
            raise ProtocolError(f"attachment of {len(blob)} bytes is over the limit of {MAX_BLOB}")
        message = dict(message, blob=len(blob))
    try:
        text = _ENCODER.encode(message)
        try:
            body = text.encode("utf-8")
        except UnicodeEncodeError:  # lone surrogates have no UTF-8 form, but JSON can escape them
            body = json.dumps(message, separators=(",", ":"), allow_nan=False).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise ProtocolError(f"frame cannot be written as JSON: {error}") from error
    if len(body) > MAX_JSON:
        raise ProtocolError(f"frame of {len(body)} bytes is over the limit of {MAX_JSON}")
    return b"".join((_LENGTH.pack(len(body)), body, blob or b""))


class Decoder:
    """Turns bytes, in whatever pieces they arrive, into frames, keeping at most one partial frame."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._start = 0
        self._message: Optional[FrameMessage] = None
        self._failed = False

    def feed(self, data: bytes) -> List[Frame]:
        """Take the next bytes and return the frames they complete, in order.

        Raises `ProtocolError` for a length over its limit, invalid UTF-8 or JSON, no object, or a bad ``blob``. Frames
        completed by the same call are lost, and every later call raises too: the connection is to be closed.
        """
        if self._failed:
            raise ProtocolError("the stream was already found to be malformed")
        self._buffer += data
        frames: List[Frame] = []
        try:
            while True:
                frame = self._next()
                if frame is None:
                    break
                frames.append(frame)
        except ProtocolError:
            self._failed = True
            self._buffer.clear()
            raise
        if self._start == len(self._buffer) or self._start > _COMPACT_AFTER:
            del self._buffer[: self._start]
            self._start = 0
        return frames

    def _next(self) -> Optional[Frame]:
        if self._message is None:
            available = len(self._buffer) - self._start
            if available < _LENGTH.size:
                return None
            (length,) = _LENGTH.unpack_from(self._buffer, self._start)
            if length > MAX_JSON:
                raise ProtocolError(f"frame of {length} bytes is over the limit of {MAX_JSON}")
            if available < _LENGTH.size + length:
                return None
            self._start += _LENGTH.size
            self._message = _parse(self._take(length))
        message, blob = self._message, None
        if "blob" in message:
            length = message["blob"]
            if len(self._buffer) - self._start < length:
                return None
            blob = self._take(length)
        self._message = None
        return Frame(message, blob)

    def _take(self, length: int) -> bytes:
        start = self._start
        self._start = start + length
        with memoryview(self._buffer) as view:
            return bytes(view[start : start + length])


def _parse(body: bytes) -> FrameMessage:
    try:
        message = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"frame is not valid JSON: {error}") from error
    if not isinstance(message, dict):
        raise ProtocolError(f"frame holds a JSON {type(message).__name__}, not an object")
    length = message.get("blob", 0)
    if isinstance(length, bool) or not isinstance(length, int) or length < 0:
        raise ProtocolError("the key blob must be a length in bytes (an integer, 0 or more)")
    if length > MAX_BLOB:
        raise ProtocolError(f"attachment of {length} bytes is over the limit of {MAX_BLOB}")
    return message
