"""Opening what is below a folder: no name, no link and no concurrent change of links leads out of it.

Each part of a path is opened relative to the folder before it; links are read and walked likewise, and one that leads
out is refused. So nothing swapped between check and opening matters. Refused or missing paths raise `FileError`.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import List, NamedTuple, Optional

from .disk import FileError, failure

_LINKS = 40
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_REPLACED = "\ufffd"


class Opened(NamedTuple):
    """An open file or folder, to be closed by whoever asked for it."""

    descriptor: int
    status: os.stat_result

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)


class Place(NamedTuple):
    """A name in an open folder, and the folders between the two that do not exist yet."""

    folder: int
    missing: List[str]
    name: str


class ConfinedFolder:
    """What is below one folder."""

    def __init__(self, root: str) -> None:
        self._root = root

    def parts(self, path: str) -> List[str]:
        if "\0" in path:
            raise FileError("bad_request", "a path must not hold NUL")
        parts = _names(_below(self._root, path, path))
        if ".." in parts:
            raise FileError("forbidden", f"{path} may lead out of the workspace: write it without ..")
        return parts

    def open(self, path: str) -> Opened:
        """Open a regular file or a folder, never waiting for anything."""
        parts = self.parts(path)
        with _Walk(self._root, path) as walk:
            return walk.end(parts)

    def place(self, path: str) -> Place:
        """Where a new file goes: the deepest existing folder on its way. A link in its place stays."""
        parts = self.parts(path)
        if not parts or path.endswith("/"):
            raise FileError("bad_request", f"{path!r} is no name for a file")
        with _Walk(self._root, path) as walk:
            missing = walk.folders(parts[:-1])
            return Place(os.dup(walk.here), missing, parts[-1])


class _Walk:
    def __init__(self, root: str, path: str) -> None:
        self._path = path
        self._root = root
        self._links = 0
        self._stack: List[int] = []

    def __enter__(self) -> _Walk:
        try:
            self._stack.append(os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        except OSError as error:
            raise failure(error, self._path) from error
        return self

    def __exit__(self, _kind: object, error: object, _traceback: object) -> None:
        while self._stack:
            os.close(self._stack.pop())
        if isinstance(error, OSError):
            raise failure(error, self._path) from error

    @property
    def here(self) -> int:
        return self._stack[-1]

    def folders(self, parts: List[str]) -> List[str]:
        """Enter these folders; return the missing ones, from the first such on."""
        waiting = parts[::-1]
        while waiting:
            name = waiting.pop()
            target = self._enter(name)
            if target is None:
                missing = [name, *waiting[::-1]]
                if ".." in missing:  # out of a link that points nowhere
                    raise FileError("not_found", f"{self._path} leads to {name}, which does not exist")
                return missing
            waiting.extend(target[::-1])
        return []

    def end(self, parts: List[str]) -> Opened:
        waiting = parts[::-1]
        while waiting:
            name = waiting.pop()
            opened = None if waiting or name == ".." else self._open(name)
            if opened is not None:
                return opened
            target = self._enter(name)
            if target is None:
                raise FileError("not_found", f"{self._path} does not exist")
            waiting.extend(target[::-1])
        descriptor = os.dup(self.here)
        return Opened(descriptor, os.fstat(descriptor))

    def _enter(self, name: str) -> Optional[List[str]]:
        """Enter a folder, or go up; return what remains to be walked: a link's target. None: it is missing."""
        if name == "..":
            if len(self._stack) == 1:
                raise _outside(self._path)
            os.close(self._stack.pop())
            return []
        name = self._known(name)
        try:
            self._stack.append(os.open(name, _FOLDER, dir_fd=self.here))
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            return self._target(name)
        return []

    def _open(self, name: str) -> Optional[Opened]:
        """Open the last part of a path; None when it is a link or missing."""
        name = self._known(name)
        try:
            status = os.stat(name, dir_fd=self.here, follow_symlinks=False)
        except FileNotFoundError:
            return None
        if stat.S_ISLNK(status.st_mode):
            return None
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            raise FileError("not_a_file", f"{self._path} is neither a file nor a folder")
        # Not blocking: between the look and the opening somebody may have put a FIFO there.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=self.here)
        status = os.fstat(descriptor)
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            os.close(descriptor)
            raise FileError("not_a_file", f"{self._path} is no file any more")
        return Opened(descriptor, status)

    def _target(self, name: str) -> List[str]:
        try:
            target = os.readlink(name, dir_fd=self.here)
        except OSError as error:
            if error.errno == errno.EINVAL:
                raise FileError("not_found", f"{self._path}: {name} is no folder") from None
            raise
        self._links += 1
        if self._links > _LINKS:
            raise FileError("bad_request", f"{self._path} leads through too many links")
        if target.startswith("/"):
            target = _below(self._root, target, self._path)
            while len(self._stack) > 1:
                os.close(self._stack.pop())
        return _names(target)

    def _known(self, name: str) -> str:
        if _REPLACED not in name:
            return name
        present = os.listdir(self.here)
        if name in present:
            return name
        alike = [one for one in present if readable(one) == name]
        return alike[0] if len(alike) == 1 else name


def readable(name: str) -> str:
    """A name as text that can be shown; bytes that are no Unicode are replaced."""
    return os.fsencode(name).decode("utf-8", "replace")


def _below(root: str, path: str, requested: str) -> str:
    for known in (root, os.path.realpath(root)):
        if path == known or path.startswith(known.rstrip("/") + "/"):
            return path[len(known) :]
    if path.startswith("/"):
        raise _outside(requested)
    return path


def _names(path: str) -> List[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _outside(path: str) -> FileError:
    return FileError("forbidden", f"{path} leads out of the workspace")
