"""Archives that can be trusted to be whole: tar files that begin with what they are and end with their checksums."""

from __future__ import annotations

import hashlib
import io
import shutil
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from typing import IO, BinaryIO, Final, NamedTuple, Self

import orjson

from agent_core.errors import DrydockError

MAX_TEXT = 256 * 1024**2
"""Bytes of the first and of the last file, which are read as a whole."""
_PART = 1024**2
_MAX_HEADER: Final = 64 * 1024
"""Bytes of what a tar file says of one file beyond its header: a path of any length that there is, twice."""
_LONG: Final = frozenset(b"xgLKX")
"""Types of what stands before a header, and is read as a whole."""

FileMark = tuple[int, str]
"""Size and SHA-256 of a file."""
Take = Callable[[str, "HashedFile", int], None]
"""Takes a file: its name, its content and its size. It need not read all, and raises `ArchiveError`."""


class ArchiveError(DrydockError):
    """This is no archive of the kind that is meant, or it is torn or changed; the message says what to do."""


class ArchiveWriter:
    """Files of a tar file, each with its checksum; the file need not be one that can be sought in."""

    def __init__(self, file: BinaryIO) -> None:
        self.files: dict[str, FileMark] = {}
        self._file = _Counted(file)
        self._tar = tarfile.TarFile(fileobj=self._file, mode="w", format=tarfile.PAX_FORMAT)  # type: ignore[arg-type]

    @property
    def size(self) -> int:
        return self._file.size

    def add(self, name: str, content: bytes) -> None:
        self._add(name, io.BytesIO(content), len(content))

    def add_file(self, name: str, content: BinaryIO) -> str:
        """Add all of a file, from its beginning; returns the digest of what was in it."""
        size = content.seek(0, io.SEEK_END)
        content.seek(0)
        return self._add(name, content, size)

    def close(self, name: str, content: bytes) -> None:
        """Add the last file."""
        self._add(name, io.BytesIO(content), len(content))
        self._tar.close()

    def _add(self, name: str, content: BinaryIO, size: int) -> str:
        member = tarfile.TarInfo(name)
        member.size, member.mode, member.mtime = size, 0o600, int(time.time())
        reading = HashedFile(content)
        self._tar.addfile(member, reading)
        self._tar.members.clear()  # type: ignore[attr-defined] # it would remember each
        self.files[name] = size, reading.digest
        return reading.digest


class _Counted:
    """All that a tar file asks of a file that is written from its beginning to its end."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size = 0

    def write(self, data: bytes) -> int:
        self.size += len(data)
        return self._file.write(data)

    def tell(self) -> int:
        return self.size


class HashedFile(io.RawIOBase):
    """Reads another file, and knows the SHA-256 of what was read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._sum = hashlib.sha256()

    @property
    def digest(self) -> str:
        return self._sum.hexdigest()

    def read(self, size: int = -1, /) -> bytes:
        part = self._file.read(size)
        self._sum.update(part)
        return part


class Member(tarfile.TarInfo):
    """A file of a tar file that anybody may have written."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        found = super().frombuf(buf, encoding, errors)
        if found.type[0] in _LONG and found.size > _MAX_HEADER:
            raise tarfile.ReadError(f"a header of {found.size} bytes")
        return found


def members_of(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """The files of one that was opened with `Member`; a `TarError`, and nothing else, tells of what is wrong with it.

    A file with holes is wrong, too: a few bytes would become any number.
    """
    try:
        for member in tar:
            if member.issparse():
                raise tarfile.ReadError(f"{member.name[:200]!r} has holes")
            yield member
    except (ValueError, RecursionError) as error:  # in headers of headers
        raise tarfile.ReadError("a header cannot be read") from error


class ReadArchive(NamedTuple):
    """The first and the last file of an archive, which turned out to be whole."""

    first: bytes
    last: bytes


def read_archive(
    file: IO[bytes], *, first: str, last: str, check: Callable[[bytes], object], take: Take, kind: str
) -> ReadArchive:
    """Read an archive of this `kind` from its beginning to its end; what was taken counts only when this returns.

    `check` is given the content of the file `first` before anything is taken. The file `last` is JSON with the marks of
    all others in ``files``. Raises `ArchiveError`, `OSError`, or what `check` and `take` do.
    """
    found: dict[str, FileMark] = {}
    begin = end = None
    try:
        with tarfile.open(fileobj=file, mode="r|", tarinfo=Member) as tar:
            for member in members_of(tar):
                content = tar.extractfile(member) if member.isreg() else None
                if begin is None and member.name != first:
                    raise ArchiveError(f"this is no {kind}: it begins with {member.name[:200]!r}")
                if content is None or end is not None or member.name in found:
                    raise misplaced(kind, member.name)
                reading = HashedFile(content)
                if member.name in (first, last):
                    if member.size > MAX_TEXT:
                        raise ArchiveError(f"the {kind} is damaged: {member.name!r} has {member.size} bytes")
                    text = reading.read()
                    if member.name == last:
                        end = text
                        continue
                    check(text)
                    begin = text
                else:
                    take(member.name, reading, member.size)
                    while reading.read(_PART):
                        pass
                found[member.name] = member.size, reading.digest
                tar.members.clear()  # type: ignore[attr-defined] # it would remember each
    except (tarfile.TarError, EOFError) as error:
        advice = "if it is compressed or encrypted, undo that first; else take another one"
        raise ArchiveError(
            f"this is no whole {kind} ({error}); {advice if begin is None else 'take another one'}"
        ) from error
    if begin is None or end is None:
        raise ArchiveError(f"the {kind} is torn: its end is missing; take another one")
    marks = _marks(end, kind)
    wrong = sorted(name for name in found.keys() | marks.keys() if found.get(name) != marks.get(name))
    if wrong:
        raise ArchiveError(
            f"the {kind} is damaged: {wrong[0]!r} is not what was written ({len(wrong)} of {len(marks)} files); take "
            "another one"
        )
    return ReadArchive(begin, end)


def misplaced(kind: str, name: str) -> ArchiveError:
    """The error for a file that has no place in an archive of this kind."""
    return ArchiveError(f"the {kind} is damaged: {name[:200]!r} does not belong there")


def copy_to(content: HashedFile, file: BinaryIO) -> None:
    """Copy all that is left of one file to another."""
    shutil.copyfileobj(content, file, _PART)


def _marks(text: bytes, kind: str) -> Mapping[str, FileMark]:
    try:
        return {str(name): (int(size), str(digest)) for name, (size, digest) in orjson.loads(text)["files"].items()}
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ArchiveError(f"the {kind} is damaged: its checksums cannot be read; take another one") from error
