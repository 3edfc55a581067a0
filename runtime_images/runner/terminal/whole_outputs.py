"""The whole of outputs that were cut for their results, in files for whoever wants to see more."""

from __future__ import annotations

import os
from typing import Any, List, Optional, Tuple

from ..core.cut_text import Kept
from ..core.lent_secrets import Lent

LIMIT = 16 * 1024 * 1024
FOLDER_LIMIT = 128 * 1024 * 1024
_SUFFIX = ".txt"


class WholeOutputs:
    """A folder of such files. Over a limit the oldest make room; a disk that takes nothing costs only the file."""

    def __init__(
        self,
        directory: str,
        prefix: str,
        *,
        limit: int = LIMIT,
        folder_limit: int = FOLDER_LIMIT,
        lent: Optional[Lent] = None,
    ) -> None:
        """``lent``: what is not to be in the files."""
        self._lent = Lent() if lent is None else lent
        self._directory = directory
        self._prefix = prefix
        self._limit = limit
        self._folder_limit = folder_limit

    def begin(self) -> "WholeOutput":
        """Begin the file of an output."""
        try:
            os.makedirs(self._directory, mode=0o700, exist_ok=True)
            self._make_room()
        except OSError:
            return WholeOutput("", "", 0, self._lent)
        return WholeOutput(self._directory, self._prefix, self._limit, self._lent)

    def _make_room(self) -> None:
        files: List[Tuple[float, int, str]] = []
        with os.scandir(self._directory) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                files.append((status.st_mtime, status.st_size, entry.path))
        room = self._folder_limit - self._limit
        for _, size, path in sorted(files, reverse=True):
            room -= size
            if room < 0:
                os.unlink(path)


class WholeOutput:
    """The file of one output while it is written; its name comes from what it holds: the same output has one file."""

    def __init__(self, directory: str, prefix: str, limit: int, lent: Lent) -> None:
        # Loaded only now: a runner whose commands print little does without it.
        import hashlib

        self._directory = directory
        self._prefix = prefix
        self._room = limit
        self._lent = lent
        self._held = ""
        self._is_whole = True
        self._digest: Any = hashlib.sha256()
        self._path = os.path.join(directory, f"{os.urandom(8).hex()}.part")
        self._descriptor = -1
        if directory:
            self._attempt(self._open)

    def write(self, text: str) -> None:
        """Append."""
        if self._descriptor < 0:
            return
        if self._lent:
            text = self._held + text
            end = self._lent.settled(text)
            text, self._held = text[:end], text[end:]
        self._put(self._lent.hide(text))

    def _put(self, text: str) -> None:
        data = text.encode("utf-8", "replace")
        if len(data) > self._room:
            self._is_whole = False
            data = data[: self._room]
        self._room -= len(data)
        self._digest.update(data)
        self._attempt(lambda: self._write(data))

    def keep(self) -> Optional[Kept]:
        """End the file; return where it is, or None when the disk did not take it."""
        if self._descriptor >= 0 and self._held:
            self._put(self._lent.hide(self._held))
            self._held = ""
        if self._descriptor < 0:
            return None
        name = f"{self._prefix}_output_{self._digest.hexdigest()[:8]}{_SUFFIX}"
        path = os.path.join(self._directory, name)
        os.close(self._descriptor)
        self._descriptor = -1
        return Kept(path, self._is_whole) if self._attempt(lambda: os.replace(self._path, path)) else None

    def drop(self) -> None:
        """Forget the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            self._attempt(lambda: os.unlink(self._path))

    def _open(self) -> None:
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]

    def _attempt(self, work: "Any") -> bool:
        try:
            work()
        except OSError:
            self.drop()
            return False
        return True
