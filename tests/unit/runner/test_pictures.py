"""Images for models: recognised by their content, and only such as providers take."""

from __future__ import annotations

import base64
import struct
import zlib

import pytest

from runtime_images.runner.files import pictures


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int = 3, height: int = 2, filling: bytes = b"") -> bytes:
    rows = zlib.compress((b"\0" + bytes(width * 3)) * height)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [chunk(b"IHDR", header), chunk(b"tEXt", filling), chunk(b"IDAT", rows), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def bmp(width: int, height: int, depth: int = 24) -> bytes:
    row = (width * depth + 31) // 32 * 4
    body = bytes(range(row * abs(height)))
    header = struct.pack("<iiHHIIiiII", width, height, 1, depth, 0, len(body), 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54 + len(body), 0, 0, 54) + struct.pack("<I", 40) + header + body


JPEG = (
    b"\xff\xd8\xff\xe0\x00\x04\x00\x00\xff\xc0\x00\x0b\x08\x00\x02\x00\x03\x01\x01\x11\x00\xff\xda\x00\x02\x00\xff\xd9"
)
GIF = b"GIF89a" + struct.pack("<HHBBB", 3, 2, 0, 0, 0) + b"\x2c" + bytes(9) + b"\x00;"
LOSSLESS = b"VP8L" + struct.pack("<IBI", 5, 0x2F, 2 | 1 << 14)
WEBP = b"RIFF" + struct.pack("<I", 4 + len(LOSSLESS)) + b"WEBP" + LOSSLESS


@pytest.mark.parametrize(
    ("data", "mime"),
    [(png(), "image/png"), (JPEG, "image/jpeg"), (GIF, "image/gif"), (WEBP, "image/webp"), (bmp(3, 2), "image/png")],
    ids=["png", "jpeg", "gif", "webp", "bmp"],
)
def test_every_kind_is_recognised_and_measured_and_broken_ones_are_refused(data: bytes, mime: str) -> None:
    found = pictures.picture(data)
    assert found is not None
    assert (found.mime, found.width, found.height) == (mime, 3, 2)
    assert found.url.startswith(f"data:{mime};base64,")
    for broken in (data[: len(data) // 2], data[:-3], data[:12]):
        with pytest.raises(pictures.PictureError, match="broken"):
            pictures.picture(broken)


def test_a_bitmap_becomes_a_png_with_the_same_pixels_whichever_way_up() -> None:
    for height in (2, -2):
        found = pictures.picture(bmp(2, height))
        assert found is not None
        data = base64.b64decode(found.url.partition(",")[2])
        size = struct.unpack(">I", data[33:37])[0]
        rows = zlib.decompress(data[41 : 41 + size])
        upper, lower = b"\0\x02\x01\x00\x05\x04\x03", b"\0\x0a\x09\x08\x0d\x0c\x0b"
        assert rows == (lower + upper if height > 0 else upper + lower)
    with pytest.raises(pictures.PictureError, match="Convert it"):
        pictures.picture(bmp(3, 2, depth=8))


def test_what_is_no_image_is_none_whatever_it_is_called() -> None:
    for data in (b"", b"version https://git-lfs.github.com/spec/v1\n", b"RIFF\0\0\0\0WAVEfmt ", b"\0" * 50):
        assert pictures.picture(data) is None


def test_what_no_provider_takes_is_too_large() -> None:
    for data in (png(width=8001, height=1), png(filling=bytes(pictures.SIZE_LIMIT))):
        with pytest.raises(pictures.PictureError, match="too large"):
            pictures.picture(data)


def test_a_damaged_image_is_broken() -> None:
    data = bytearray(png())
    data[60] ^= 1
    with pytest.raises(pictures.PictureError, match="broken"):
        pictures.picture(bytes(data))
