"""Reading and replacing regular files, never waiting for a device; `FileError` says what to do."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import Dict, NamedTuple, Optional

from ..core.arguments import RequestError

_CODES: Dict[int, str] = {
    errno.ENOENT: "not_found",
    errno.ENOTDIR: "not_found",
    errno.EACCES: "forbidden",
    errno.EPERM: "forbidden",
    errno.EROFS: "forbidden",
    errno.ENOSPC: "no_space",
    errno.EDQUOT: "no_space",
    errno.EFBIG: "no_space",
    errno.EISDIR: "not_a_file",
    errno.ELOOP: "bad_request",
    errno.ENAMETOOLONG: "bad_request",
}


_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}


class FileError(RequestError):
    """A file cannot be used as asked; ``code`` is the answer's error code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class FileContent(NamedTuple):
    """Part of a file, or all of it."""

    data: bytes
    size: int
    mode: int


def failure(error: OSError, path: str) -> FileError:
    """Return the error to answer with."""
    reason = error.strerror or str(error)
    return FileError(_CODES.get(error.errno or 0, "io"), f"{path}: {reason}")


def kind(path: str) -> str:
    """Return "file", "directory", "missing", or what else it is ("a device", "a FIFO", "a socket")."""
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    except (OSError, ValueError) as error:
        raise FileError("bad_request", f"{path}: {getattr(error, 'strerror', None) or error}") from error
    return _KINDS.get(stat.S_IFMT(mode), "a device")


def read(path: str, limit: int, offset: int = 0) -> FileContent:
    """Read at most ``limit`` bytes of a regular file from an offset; anything else is refused without waiting."""
    found = kind(path)
    if found == "missing":
        raise FileError("not_found", f"{path} does not exist")
    if found != "file":
        raise FileError("not_a_file", f"{path} is {'a directory' if found == 'directory' else found}, not a file")
    try:
        # Not blocking: between the look and the opening somebody may have put a FIFO there.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise FileError("not_a_file", f"{path} is not a file any more")
            file.seek(offset)
            data = file.read(limit)
            if data is None:
                raise FileError("not_a_file", f"{path} has nothing to read now, and reading would wait for it")
            return FileContent(data, status.st_size, stat.S_IMODE(status.st_mode))
    except OSError as error:
        raise failure(error, path) from error


def replace(path: str, data: bytes, mode: Optional[int] = None) -> bool:
    """Make these bytes the file's content, all or nothing; return whether the file is new.

    Missing parents are made. Permission bits, and where allowed the owner, are kept; a symbolic link stays, its target
    is written. With a `FileError` the old content is intact.
    """
    found = kind(path)
    if found not in ("file", "missing"):
        raise FileError("not_a_file", f"{path} is {'a directory' if found == 'directory' else found}, not a file")
    target = os.path.realpath(path)
    if found == "missing" and os.path.lexists(target):
        # "none/../file", "file/": not the path of that file, though it leads there when one does not look.
        raise FileError("not_found", f"{path}: a part of the path before the last is not a directory")
    if found == "file" and not os.access(target, os.W_OK):
        # The folder may allow to replace it, but whoever took away the right to write meant the content.
        raise FileError("forbidden", f"{path}: Permission denied, the file is read-only")
    try:
        before = os.stat(target) if found == "file" else None
        os.makedirs(os.path.dirname(target), exist_ok=True)
        _write_beside(target, data, before, mode)
    except (FileExistsError, NotADirectoryError):  # from making the folders
        raise FileError("not_found", f"{path}: a part of the path before the last is not a directory") from None
    except OSError as error:
        if found == "file" and error.errno in (errno.EACCES, errno.EPERM, errno.EBUSY, errno.EXDEV, errno.EROFS):
            _write_in_place(target, data, mode)  # the folder may be read-only, or the file a mount of its own
        else:
            raise failure(error, path) from error
    return found == "missing"


def _write_beside(target: str, data: bytes, before: Optional[os.stat_result], mode: Optional[int]) -> None:
    folder, name = os.path.split(target)
    temporary = os.path.join(folder, f".{name[:16]}.{os.urandom(6).hex()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            if before is not None:
                own = os.fstat(descriptor)
                if (own.st_uid, own.st_gid) != (before.st_uid, before.st_gid):
                    with contextlib.suppress(PermissionError):  # only root may give files away
                        os.fchown(descriptor, before.st_uid, before.st_gid)
                os.fchmod(descriptor, stat.S_IMODE(before.st_mode))
            if mode is not None:
                os.fchmod(descriptor, mode)
        os.replace(temporary, target)
    except OSError:
        os.unlink(temporary)
        raise


def _write_in_place(target: str, data: bytes, mode: Optional[int]) -> None:
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "wb") as file:
            file.write(data)
            file.truncate()
            if mode is not None:
                os.fchmod(descriptor, mode)
    except OSError as error:
        raise failure(error, target) from error
