"""Image files as models can take them: whole, of a kind and size that providers accept.

A provider refuses a broken image in the history with every later request, so it must never get there.
"""

from __future__ import annotations

import base64
import os
import struct
import zlib
from typing import Callable, NamedTuple, Optional, Tuple

SIZE_LIMIT = 3932160
"""Bytes of an image; in base64 it is 5 MiB, the most that all providers take."""
SIDE_LIMIT = 8000


class PictureError(Exception):
    """The image is broken or too large to be shown; the message ends a sentence."""


class Picture(NamedTuple):
    """An image for a vision model: its type, width and height, and all of it as a data URL."""

    mime: str
    width: int
    height: int
    url: str


def is_named_as_one(path: str) -> bool:
    """True when the name says that the file is an image."""
    return os.path.splitext(path)[1].lower() in (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp")


def picture(data: bytes) -> Optional[Picture]:
    """Return the image that these bytes are, whatever the file's name; None when they are none."""
    found = next(((mime, measure) for start, mime, measure in _KINDS if data.startswith(start)), None)
    if found is None or (found[0] == "image/webp" and data[8:12] != b"WEBP"):
        return None
    mime, measure = found
    try:
        width, height = measure(data)
    except (struct.error, IndexError):
        width = height = 0
    if not width or not height:
        raise PictureError("it is broken: the image is not complete. Make it anew")
    if mime == "image/bmp":
        mime, data = "image/png", _png(data, width, height)
    if len(data) > SIZE_LIMIT or max(width, height) > SIDE_LIMIT:
        raise PictureError(
            f"the image is too large to be shown ({width} x {height} pixels, {len(data)} bytes): at most {SIDE_LIMIT} "
            f"pixels a side and {SIZE_LIMIT} bytes are possible. Make a smaller copy and view that"
        )
    return Picture(mime, width, height, f"data:{mime};base64,{base64.b64encode(data).decode('ascii')}")


def _size_of_png(data: bytes) -> Tuple[int, int]:
    position = 8
    while data[position + 4 : position + 8] != b"IEND":
        (length,) = struct.unpack_from(">I", data, position)
        kind_and_content = data[position + 4 : position + 8 + length]
        (checksum,) = struct.unpack_from(">I", data, position + 8 + length)
        if zlib.crc32(kind_and_content) != checksum:
            return 0, 0
        position += length + 12
    if position + 12 > len(data):
        return 0, 0
    width, height = struct.unpack_from(">II", data, 16)
    return width, height


def _size_of_jpeg(data: bytes) -> Tuple[int, int]:
    if b"\xff\xd9" not in data[-65536:]:
        return 0, 0
    position = 2
    while data[position] == 0xFF:
        marker = data[position + 1]
        if marker == 0xFF:  # filling
            position += 1
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", data, position + 5)
            return width, height
        else:
            position += 2 + int(struct.unpack_from(">H", data, position + 2)[0])
    return 0, 0


def _size_of_gif(data: bytes) -> Tuple[int, int]:
    if data.rstrip(b"\0")[-1:] != b";":
        return 0, 0
    width, height = struct.unpack_from("<HH", data, 6)
    return width, height


def _size_of_webp(data: bytes) -> Tuple[int, int]:
    if struct.unpack_from("<I", data, 4)[0] + 8 > len(data):
        return 0, 0
    kind = data[12:16]
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8X":
        sides = struct.unpack_from("<HBHB", data, 24)
        return sides[0] + (sides[1] << 16) + 1, sides[2] + (sides[3] << 16) + 1
    return 0, 0


def _size_of_bmp(data: bytes) -> Tuple[int, int]:
    width, height, _, depth = struct.unpack_from("<iiHH", data, 18)
    (start,) = struct.unpack_from("<I", data, 10)
    is_whole = width > 0 and start + _bmp_row(width, depth) * abs(height) <= len(data)
    return (width, abs(height)) if is_whole else (0, 0)


def _bmp_row(width: int, depth: int) -> int:
    return (width * depth + 31) // 32 * 4


def _png(data: bytes, width: int, height: int) -> bytes:
    (start,) = struct.unpack_from("<I", data, 10)
    is_upright = struct.unpack_from("<i", data, 22)[0] > 0
    depth, compression = struct.unpack_from("<HI", data, 28)
    if depth not in (24, 32) or compression not in (0, 3) or width * height > SIDE_LIMIT * SIDE_LIMIT // 4:
        raise PictureError("bitmaps like this one cannot be shown. Convert it to PNG and view that")
    step, row = depth // 8, _bmp_row(width, depth)
    lines = bytearray()
    for number in range(height):
        begin = start + row * (height - 1 - number if is_upright else number)
        line = data[begin : begin + width * step]
        out = bytearray(width * 3)
        out[0::3], out[1::3], out[2::3] = line[2::step], line[1::step], line[0::step]
        lines += b"\0" + out
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(lines))), (b"IEND", b""))
    chunks = (
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


_KINDS: "Tuple[Tuple[bytes, str, Callable[[bytes], Tuple[int, int]]], ...]" = (
    (b"\x89PNG\r\n\x1a\n", "image/png", _size_of_png),
    (b"\xff\xd8\xff", "image/jpeg", _size_of_jpeg),
    (b"GIF87a", "image/gif", _size_of_gif),
    (b"GIF89a", "image/gif", _size_of_gif),
    (b"RIFF", "image/webp", _size_of_webp),
    (b"BM", "image/bmp", _size_of_bmp),
)
"""Magic bytes and measure of each kind; no size means that an image is incomplete."""
