"""Earlier versions of edited files, for undo: on disk, or in memory where the disk does not take them."""

from __future__ import annotations

import contextlib
import os
from typing import Dict, List, Optional

VERSIONS = 10
DISK_LIMIT = 512 * 1024 * 1024
_MEMORY_LIMIT = 32 * 1024 * 1024


class EditHistory:
    """The last ten versions of each file, newest last. Used from worker threads, one file by one thread at a time.

    A file is the same by whatever link it is reached. All versions together are bounded: those of the files that were
    not edited for the longest time go first.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._memory: Dict[str, List[bytes]] = {}
        self._added = DISK_LIMIT  # bytes since it was last looked how many there are; nobody has looked yet

    def push(self, path: str, content: bytes) -> None:
        """Remember a version."""
        path = os.path.realpath(path)
        folder = self._folder(path)
        self._make_room(len(content))
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            numbers = self._numbers(folder)
            number = numbers[-1] + 1 if numbers else 0
            name = os.path.join(folder, str(number))
            with open(name + ".part", "wb") as file:
                file.write(content)
            os.rename(name + ".part", name)
            for old in numbers[: max(0, len(numbers) + 1 - VERSIONS)]:
                os.unlink(os.path.join(folder, str(old)))
        except OSError:
            self._push_to_memory(path, content)

    def pop(self, path: str) -> Optional[bytes]:
        """Return the newest version and forget it; None when there is none."""
        path = os.path.realpath(path)
        kept = self._memory.get(path)
        if kept:
            content = kept.pop()
            if not kept:
                del self._memory[path]
            return content
        folder = self._folder(path)
        try:
            numbers = self._numbers(folder)
            if not numbers:
                return None
            name = os.path.join(folder, str(numbers[-1]))
            with open(name, "rb") as file:
                content = file.read()
            os.unlink(name)
        except OSError:
            return None
        return content

    def _make_room(self, size: int) -> None:
        self._added += size
        if self._added < DISK_LIMIT // 8:
            return
        self._added = 0
        try:
            with os.scandir(self._directory) as found:
                folders = sorted(found, key=lambda entry: entry.stat().st_mtime_ns, reverse=True)
        except OSError:
            return
        total = size
        for folder in folders:
            total += _size(folder.path)
            if total > DISK_LIMIT:
                _remove(folder.path)

    def _folder(self, path: str) -> str:
        import hashlib  # it loads a cryptographic library, which the runner's start should not wait for

        return os.path.join(self._directory, hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:32])

    def _numbers(self, folder: str) -> List[int]:
        if not os.path.isdir(folder):
            return []
        return sorted(int(name) for name in os.listdir(folder) if name.isdigit())

    def _push_to_memory(self, path: str, content: bytes) -> None:
        kept = self._memory.setdefault(path, [])
        kept.append(content)
        del kept[:-VERSIONS]
        while sum(len(version) for versions in self._memory.values() for version in versions) > _MEMORY_LIMIT:
            oldest = next(iter(self._memory))
            del self._memory[oldest]


def _size(folder: str) -> int:
    try:
        with os.scandir(folder) as versions:
            return sum(version.stat().st_size for version in versions)
    except OSError:
        return 0


def _remove(folder: str) -> None:
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)
