"""A ZIP file of a folder, made while it is read: only the list of its contents is kept.

Links are stored as links, never followed. Unreadable and special files are left out and named in a text in the archive.
Files are taken up to the size that they have when their turn comes.
"""

from __future__ import annotations

import os
import stat
import struct
import time
import zlib
from typing import Generator, Iterator, List, NamedTuple, Tuple

ENTRIES_LIMIT = 200_000
DEPTH_LIMIT = 200
LEFT_OUT = "drydock-left-out.txt"
_NOTES = 1000
_CHUNK = 256 * 1024
_LARGE = 0xF0000000
_BITS_16, _BITS_32 = 0xFFFF, 0xFFFFFFFF
_STREAMED, _UTF_8 = 0x0008, 0x0800
_DEFLATED = 8
_MADE_ON_UNIX = 3 << 8
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class _Head(NamedTuple):
    name: bytes
    flags: int
    method: int
    moment: int
    extra: bytes
    attributes: int


class ZipStream:
    """One archive of the folder that ``descriptor`` has open; the descriptor is closed with it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._directory: List[bytes] = []
        self._offset = 0
        self._notes: List[str] = []
        self._more_notes = 0
        self._pending = b""  # of what was read last, beyond what was asked for
        self._parts = self._all()

    def read(self, most: int, seconds: float) -> Tuple[bytes, bool]:
        """The next bytes, ``most`` of them or what can be had within the time; and whether that was all."""
        deadline = time.monotonic() + seconds
        parts = [self._pending]
        size = len(self._pending)
        has_more = True
        while has_more and size < most and time.monotonic() <= deadline:
            part = next(self._parts, None)
            has_more = part is not None
            if part is not None:
                parts.append(part)
                size += len(part)
        data = b"".join(parts)
        self._pending = data[most:]
        return data[:most], not has_more and not self._pending

    def close(self) -> None:
        self._parts.close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _all(self) -> Generator[bytes, None, None]:
        for part in self._folder(self._descriptor, b"", 0):
            self._offset += len(part)
            yield part
        if self._notes:
            more = f"… and {self._more_notes} more\n" if self._more_notes else ""
            text = "Not in this archive:\n" + "".join(f"{note}\n" for note in self._notes) + more
            head = _head(LEFT_OUT.encode(), stat.S_IFREG | 0o644, time.time())
            for part in self._entry(head, iter([text.encode()])):
                self._offset += len(part)
                yield part
        yield from self._end()

    def _folder(self, folder: int, prefix: bytes, depth: int) -> Iterator[bytes]:
        try:
            names = sorted(os.fsencode(name) for name in os.listdir(folder))
        except OSError as error:
            self._note(prefix, error.strerror or "unreadable")
            return
        for name in names:
            if len(self._directory) >= ENTRIES_LIMIT:
                self._note(prefix + name, f"an archive holds at most {ENTRIES_LIMIT} entries")
                continue
            try:
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISLNK(status.st_mode):
                    target = os.fsencode(os.readlink(name, dir_fd=folder))
                    yield from self._entry(_head(prefix + name, status.st_mode, status.st_mtime), iter([target]))
                    continue
                if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
                    self._note(prefix + name, "neither a file nor a folder")
                    continue
                opened = os.open(name, _OPEN, dir_fd=folder)
            except OSError as error:
                self._note(prefix + name, error.strerror or "unreadable")
                continue
            try:
                yield from self._opened(opened, prefix + name, depth)
            finally:
                os.close(opened)

    def _opened(self, descriptor: int, path: bytes, depth: int) -> Iterator[bytes]:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            yield from self._entry(_head(path + b"/", status.st_mode, status.st_mtime), iter(()))
            if depth >= DEPTH_LIMIT:
                self._note(path, f"folders are taken {DEPTH_LIMIT} levels deep")
                return
            yield from self._folder(descriptor, path + b"/", depth + 1)
        elif stat.S_ISREG(status.st_mode):
            content = self._content(descriptor, status.st_size, path)
            head = _head(path, status.st_mode, status.st_mtime)
            yield from self._entry(head, content, large=status.st_size >= _LARGE)
        else:
            self._note(path, "neither a file nor a folder")

    def _content(self, descriptor: int, size: int, path: bytes) -> Iterator[bytes]:
        while size > 0:
            try:
                data = os.read(descriptor, min(_CHUNK, size))
            except OSError as error:
                self._note(path, f"only its beginning: {error.strerror}")
                return
            if not data:
                return
            size -= len(data)
            yield data

    def _entry(self, head: _Head, content: Iterator[bytes], *, large: bool = False) -> Iterator[bytes]:
        offset = self._offset
        version = 45 if large else 20
        extra = head.extra + (struct.pack("<HHQQ", 1, 16, 0, 0) if large else b"")
        unknown = _BITS_32 if large else 0
        common = (version, head.flags, head.method, head.moment)
        sizes = (0, unknown, unknown, len(head.name), len(extra))
        yield struct.pack("<4sHHHIIIIHH", b"PK\3\4", *common, *sizes) + head.name + extra
        packer = zlib.compressobj(1, zlib.DEFLATED, -15)
        checksum = size = packed = 0
        for data in content:
            checksum = zlib.crc32(data, checksum)
            size += len(data)
            part = packer.compress(data)
            packed += len(part)
            yield part  # empty ones too: whoever reads looks at the time
        part = packer.flush()
        packed += len(part)
        form = "<4sIQQ" if large else "<4sIII"
        yield part + struct.pack(form, b"PK\7\x08", checksum, packed, size)
        self._directory.append(_listed(head, version, checksum, packed, size, offset))

    def _end(self) -> Iterator[bytes]:
        start, length, count = self._offset, sum(map(len, self._directory)), len(self._directory)
        for first in range(0, count, 1000):
            yield b"".join(self._directory[first : first + 1000])
        tail = b""
        if count >= _BITS_16 or start >= _BITS_32 or length >= _BITS_32:
            record = struct.pack(
                "<4sQHHIIQQQQ", b"PK\6\6", 44, _MADE_ON_UNIX | 45, 45, 0, 0, count, count, length, start
            )
            tail = record + struct.pack("<4sIQI", b"PK\6\7", 0, start + length, 1)
        few, short, early = min(count, _BITS_16), min(length, _BITS_32), min(start, _BITS_32)
        yield tail + struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, few, few, short, early, 0)

    def _note(self, path: bytes, reason: str) -> None:
        if len(self._notes) < _NOTES:
            self._notes.append(f"{path.decode('utf-8', 'replace') or '.'}: {reason}")
        else:
            self._more_notes += 1


def _head(name: bytes, mode: int, changed: float) -> _Head:
    seconds = int(min(max(changed, 0), 0x7FFFFFFF))
    try:
        name.decode("utf-8")
        flags = _STREAMED | _UTF_8
    except UnicodeDecodeError:
        flags = _STREAMED  # the bytes as they are, for those who unpack it on a system of the same kind
    extra = struct.pack("<HHBi", 0x5455, 5, 1, seconds)
    at = time.gmtime(max(seconds, 315532800))  # dates of ZIP begin in 1980, and count pairs of seconds
    day = (at.tm_year - 1980) << 9 | at.tm_mon << 5 | at.tm_mday
    moment = day << 16 | at.tm_hour << 11 | at.tm_min << 5 | at.tm_sec // 2
    return _Head(name, flags, _DEFLATED, moment, extra, mode << 16 | (0x10 if stat.S_ISDIR(mode) else 0))


def _listed(head: _Head, version: int, checksum: int, packed: int, size: int, offset: int) -> bytes:
    """The entry in the central directory; what exceeds 32 bits goes into an extra field."""
    wide = [value for value in (size, packed, offset) if value >= _BITS_32]
    extra = head.extra + (struct.pack(f"<HH{len(wide)}Q", 1, 8 * len(wide), *wide) if wide else b"")
    common = (_MADE_ON_UNIX | 45, 45 if wide else version, head.flags, head.method, head.moment, checksum)
    sizes = (min(packed, _BITS_32), min(size, _BITS_32), len(head.name), len(extra), 0, 0, 0)
    fixed = struct.pack("<4sHHHHIIIIHHHHHII", b"PK\1\2", *common, *sizes, head.attributes, min(offset, _BITS_32))
    return fixed + head.name + extra
