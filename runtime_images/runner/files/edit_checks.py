"""What a file must be for an edit, and the words in which it is refused."""

from __future__ import annotations

import os

from . import disk
from .text_file import is_binary

FILE_LIMIT = 10 * 1024 * 1024


class EditError(Exception):
    """The edit cannot be done; the message is for the model."""


def exists(path: str) -> bool:
    """Return whether there is something at an absolute path.

    Raises:
        FileError: that cannot be found out.
    """
    return os.path.isabs(path) and disk.kind(path) != "missing"


def require_absolute(path: str, directory: str) -> None:
    """Refuse a relative path; ``directory`` is the one below which it might have been meant."""
    if os.path.isabs(path):
        return
    text = f"Invalid `path` parameter: {path}. It must be an absolute path, beginning with `/`."
    candidate = os.path.normpath(os.path.join(directory, path))
    raise EditError(f"{text} Did you mean {candidate}?" if path and os.path.lexists(candidate) else text)


def require_ordinary(path: str) -> None:
    """Refuse what is neither a file nor a directory: reading it might never end."""
    kind = disk.kind(path)
    if kind not in ("file", "directory"):
        raise EditError(f"File validation failed for {path}: it is {kind}, not a regular file.")


def require_small(path: str) -> None:
    """Refuse a file over the limit."""
    size = os.stat(path).st_size
    if size > FILE_LIMIT:
        raise EditError(
            f"File validation failed for {path}: it has {size / 1048576:.1f} MB, the limit is "
            f"{FILE_LIMIT // 1048576} MB. Look at parts of it with head, tail or sed -n."
        )


def require_text(path: str, data: bytes) -> None:
    """Refuse a file with this content if it is binary."""
    if is_binary(data):
        raise EditError(
            f"File validation failed for {path}: ERROR_BINARY_FILE, it is binary and cannot be shown or edited."
        )


def require_fitting(path: str, data: bytes) -> None:
    """Refuse a content over the limit."""
    if len(data) > FILE_LIMIT:
        raise EditError(f"The file {path} would have {len(data)} bytes; the limit is {FILE_LIMIT}. It was not written.")
