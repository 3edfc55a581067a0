"""What comes into the workspace: stored whole or not at all, and seen under its name with its last byte."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import Optional

from . import disk
from .beneath import Beneath
from .disk import FileError


class Incoming:
    """A file that is written beside where it is to be; nothing is seen of it before `keep`."""

    def __init__(self, beneath: Beneath, path: str) -> None:
        self._place = beneath.place(path)
        self._path = path
        self._temporary: Optional[str] = None
        self._descriptor = -1
        try:
            if not self._place.missing:
                self._check_present(self._place.folder)
            self._descriptor = self._open()
        except OSError as error:
            os.close(self._place.folder)
            raise disk.failure(error, path) from error
        except FileError:
            os.close(self._place.folder)
            raise

    def part(self, offset: int, data: bytes) -> None:
        """Take bytes for that place in the file."""
        view = memoryview(data)
        while view:
            written = os.pwrite(self._descriptor, view, offset)
            view, offset = view[written:], offset + written

    def keep(self) -> int:
        """Make it the file under its name; returns its size. Folders on the way are made."""
        folder = os.dup(self._place.folder)
        try:
            for name in self._place.missing:
                deeper = _made_folder(name, folder)
                os.close(folder)
                folder = deeper
            self._check_present(folder)
            if self._temporary is None:
                self._name(folder)
            else:
                os.rename(self._temporary, self._place.name, src_dir_fd=self._place.folder, dst_dir_fd=folder)
                self._temporary = None
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            raise disk.failure(error, self._path) from error
        finally:
            os.close(folder)

    def _name(self, folder: int) -> None:
        """Give the file its name: in two steps, since what has none yet cannot replace what is there."""
        name = _beside(self._place.name)
        os.link(f"/proc/self/fd/{self._descriptor}", name, dst_dir_fd=folder, follow_symlinks=True)
        try:
            os.rename(name, self._place.name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            os.unlink(name, dir_fd=folder)
            raise

    def close(self) -> None:
        """Let go of it; what was not kept is gone."""
        if self._descriptor < 0:
            return
        if self._temporary is not None:
            os.unlink(self._temporary, dir_fd=self._place.folder)
        os.close(self._descriptor)
        os.close(self._place.folder)
        self._descriptor = -1

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC
        try:
            return os.open(".", flags | os.O_TMPFILE, 0o666, dir_fd=self._place.folder)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
                raise
        self._temporary = _beside(self._place.name)
        return os.open(self._temporary, flags | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=self._place.folder)

    def _check_present(self, folder: int) -> None:
        """What is there may be a file or a link, which are replaced; a file's rights are kept."""
        try:
            present = os.stat(self._place.name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return
        if stat.S_ISREG(present.st_mode):
            if self._descriptor >= 0:
                os.fchmod(self._descriptor, stat.S_IMODE(present.st_mode))
        elif not stat.S_ISLNK(present.st_mode):
            what = "a folder" if stat.S_ISDIR(present.st_mode) else "no file"
            raise FileError("not_a_file", f"{self._path} is {what} already")


def _made_folder(name: str, folder: int) -> int:
    """Open a folder, making it where it is missing."""
    with contextlib.suppress(FileExistsError):  # made by somebody else; if it is no folder, opening says so
        os.mkdir(name, 0o777, dir_fd=folder)
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)


def _beside(name: str) -> str:
    return f".{name[:40]}.{os.urandom(6).hex()}.tmp"  # at most four bytes a sign, and 255 in all
