"""A workspace as a tar file, read from outside its sandbox while what is in there may go on.

Files, folders and links with their modes and times; no sockets, pipes and devices. What a program inside puts into a
file's or folder's place meanwhile is never followed out of the workspace. Functions block.
"""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import IO, Any, Final, Protocol

from agent_core.errors import SandboxError

MAX_DEPTH: Final = 200
_PART: Final = 1024**2
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_KINDS: Final = {stat.S_IFREG: tarfile.REGTYPE, stat.S_IFDIR: tarfile.DIRTYPE, stat.S_IFLNK: tarfile.SYMTYPE}


class WritableFile(Protocol):
    """All that is asked of the file that an archive is written to, from its beginning to its end."""

    def write(self, data: bytes, /) -> int: ...

    def tell(self) -> int: ...


class WorkspaceArchive:
    """Writes the tar file; a context manager. `left_out` has the paths that could not be read, or had no room.

    `most`: how many bytes the files may have together (0: any); a file that is mostly holes says that it has more than
    any disk. Memory is bounded by the number of folders and of files with several names.
    """

    def __init__(self, file: WritableFile, most: int) -> None:
        self.left_out: list[str] = []
        self._left = most or None
        self._tar = tarfile.TarFile(
            fileobj=file,  # type: ignore[arg-type] # no more is asked of it
            mode="w",
            format=tarfile.PAX_FORMAT,
            copybufsize=_PART,
        )

    def __enter__(self) -> WorkspaceArchive:
        return self

    def __exit__(self, kind: object, *_error: object) -> None:
        if kind is None:
            self._tar.close()

    def add_folder(self, folder: Path) -> None:
        """Add all that is in a folder of this host; raises `OSError` where it cannot be entered."""
        names: dict[tuple[int, int], str] = {}
        top = os.open(folder, _FOLDER)
        try:
            folders: list[tuple[str, ...]] = [()]
            while folders:
                path = folders.pop()
                try:
                    with closing(_Opened(_open_below(top, path))) as opened, os.scandir(opened.number) as entries:
                        folders.extend(
                            (*path, entry.name)
                            for entry in entries
                            if self._add_entry(opened.number, entry.name, path, names)
                        )
                except FileNotFoundError:
                    pass  # removed meanwhile
                except _ReadError:
                    self.left_out.append("/".join(path))
        finally:
            os.close(top)

    def add_tar(self, chunks: Iterable[bytes]) -> None:
        """Add all of another tar file, whose first folder is left away; raises `tarfile.ReadError` where it is torn."""
        lost, read = set[str](), _Chunks(chunks)
        with tarfile.open(fileobj=io.BufferedReader(read, _PART), mode="r|", bufsize=_PART) as source:
            for member in source:
                path, link = _below(member.name), _below(member.linkname) if member.islnk() else member.linkname
                kind = tarfile.REGTYPE if member.isreg() else member.type
                is_known = kind in _KINDS.values() or (kind == tarfile.LNKTYPE and link not in lost)
                if path and is_known:
                    content = source.extractfile(member) if member.isreg() else None
                    if not self._add(path, kind, member.mode, member.mtime, link, member.size, content):
                        lost.add(path)
                source.members.clear()  # type: ignore[attr-defined] # it would remember each
            while source.fileobj.read(_PART):  # what an engine has behind the end
                pass
        if read.count < source.offset + 2 * tarfile.BLOCKSIZE:
            raise tarfile.ReadError("its end is missing")

    def _add_entry(self, folder: int, name: str, path: Sequence[str], names: dict[tuple[int, int], str]) -> bool:
        """Add one of a folder's entries; returns whether there is something below it."""
        full = "/".join((*path, name))
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            kind = _KINDS.get(stat.S_IFMT(found.st_mode))
            link = os.readlink(name, dir_fd=folder) if kind == tarfile.SYMTYPE else ""
            content = None
            if kind == tarfile.REGTYPE:
                if (first := names.get((found.st_dev, found.st_ino))) is not None:
                    kind, link = tarfile.LNKTYPE, first
                else:
                    content = os.fdopen(os.open(name, _FILE, dir_fd=folder), "rb", 0)
                    found = os.fstat(content.fileno())
        except FileNotFoundError:
            return False
        except OSError:  # nobody's to read, or another thing by now
            self.left_out.append(full)
            return False
        if kind is None:
            return False
        if kind == tarfile.DIRTYPE and len(path) >= MAX_DEPTH:
            self.left_out.append(full)
            return False
        try:
            if content is not None and not stat.S_ISREG(found.st_mode):
                return False
            is_added = self._add(full, kind, found.st_mode, found.st_mtime, link, found.st_size, content)
        finally:
            if content is not None:
                content.close()
        if is_added and content is not None and found.st_nlink > 1:
            names[found.st_dev, found.st_ino] = full
        return kind == tarfile.DIRTYPE

    def _add(
        self, path: str, kind: bytes, mode: int, mtime: float, link: str, size: int, content: IO[bytes] | None
    ) -> bool:
        about = tarfile.TarInfo(path)
        about.type, about.mode, about.mtime, about.linkname = kind, stat.S_IMODE(mode), int(mtime), link
        if content is None:
            self._tar.addfile(about)
        else:
            if self._left is not None and size > self._left:
                self.left_out.append(path)
                return False
            self._left = None if self._left is None else self._left - size
            about.size = size
            whole = _OfSize(content)
            self._tar.addfile(about, whole)
            if whole.has_failed:
                self.left_out.append(path)
        self._tar.members.clear()  # type: ignore[attr-defined] # it would remember each
        return True


class _ReadError(Exception):
    """A folder cannot be read."""


class _Opened:
    def __init__(self, number: int) -> None:
        self.number = number

    def close(self) -> None:
        os.close(self.number)


def _open_below(top: int, path: Sequence[str]) -> int:
    """Open a folder name by name, so that no link is followed anywhere."""
    found = os.dup(top)
    for name in path:
        try:
            inner = os.open(name, _FOLDER, dir_fd=found)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _ReadError from error
        finally:
            os.close(found)
        found = inner
    return found


def _below(name: str) -> str:
    """The path within the first folder of the path."""
    return "/".join([part for part in name.split("/") if part not in ("", ".")][1:])


class _OfSize:
    """Reads a file of this host that may shrink, or fail, meanwhile: what is missing then is zeros."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.has_failed = False

    def read(self, size: int = -1, /) -> bytes:
        data = b""
        try:
            while len(data) < size and (part := self._file.read(size - len(data))):
                data += part
        except OSError:
            self.has_failed = True
        if len(data) < size and isinstance(self._file, tarfile.ExFileObject):
            raise tarfile.ReadError("it was cut off")
        return data.ljust(size, b"\0")


class _Chunks(io.RawIOBase):
    """A file that is read once, made of chunks; `count`: bytes of those that were taken."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._rest = memoryview(b"")
        self.count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            chunk = next(self._chunks, b"")
            self._rest = memoryview(chunk)
            self.count += len(chunk)
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count


def archive_folder(folder: Path, file: WritableFile, most: int) -> list[str]:
    """Write the tar file of a workspace that is a folder of this host; returns what is not in it."""
    try:
        with WorkspaceArchive(file, most) as archive:
            archive.add_folder(folder)
            return archive.left_out
    except FileNotFoundError as error:
        raise SandboxError("Its workspace is gone.", code="lost") from error
