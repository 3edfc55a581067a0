"""Disk usage of trees of files, also of unlinked and closed ones; imports no other module of the runner.

As a program (``python3 disk_usage.py JSON``) it measures for whoever does not trust what runs in a sandbox.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
from typing import Any, Iterable, List, NamedTuple, Set, Tuple

_DEPTH = 200
"""Nesting of folders: nobody works deeper, and each level holds a descriptor."""
_NAMES_FOR_ONE = 8
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_TO_OWNER = stat.S_IRUSR | stat.S_IXUSR


class TreeUsage(NamedTuple):
    """Allocated bytes (not a sparse file's size) and entries; ``whole`` is False where they are a lower bound."""

    bytes: int = 0
    entries: int = 0
    whole: bool = True

    def exceeds(self, most_bytes: int, most_entries: int) -> bool:
        """True when it is over the limits or cannot be told; 0 means no limit."""
        if not (most_bytes or most_entries):
            return False
        too_many = bool(most_entries) and self.entries > most_entries
        return too_many or (bool(most_bytes) and self.bytes > most_bytes) or not self.whole


def measure(roots: Iterable[str], processes: Iterable[int] = (), most_entries: int = 0) -> TreeUsage:
    """Measure trees, each file once, and the unlinked files that these processes hold open.

    Symbolic links and mounted file systems are not followed. With ``most_entries`` it stops when there are clearly
    more.
    """
    found = _Measuring(most_entries)
    for root in roots:
        found.tree(root)
    for process in processes:
        found.open_files(process)
    return TreeUsage(found.bytes, found.entries, found.whole)


class _TooManyError(Exception):
    """There is more than needs to be known exactly."""


class _Measuring:
    def __init__(self, most_entries: int) -> None:
        self.bytes = self.entries = 0
        self.whole = True
        self._names = 0
        self._most_entries = most_entries
        self._devices: Set[int] = set()
        self._seen: Set[Tuple[int, int]] = set()

    def tree(self, root: str) -> None:
        try:
            descriptor = os.open(root, _FOLDER)
        except OSError:
            return  # not there (yet)
        try:
            status = os.fstat(descriptor)
            if (status.st_dev, status.st_ino) in self._seen:
                return
            self._devices.add(status.st_dev)
            self._add(status)
            self._seen.add((status.st_dev, status.st_ino))
            self._folder(descriptor, status.st_dev, 0)
        except _TooManyError:
            self.whole = False
        finally:
            os.close(descriptor)

    def open_files(self, process: int) -> None:
        """Count unlinked files that a process holds open or, where that may be read, has mapped."""
        for kind in ("fd", "map_files"):
            try:
                names = os.listdir(f"/proc/{process}/{kind}")
            except OSError:
                continue
            for name in names:
                try:
                    status = os.stat(f"/proc/{process}/{kind}/{name}")
                except OSError:
                    continue
                if status.st_nlink == 0 and stat.S_ISREG(status.st_mode) and status.st_dev in self._devices:
                    self._once(status)

    def _folder(self, descriptor: int, device: int, depth: int) -> None:
        folders: List[Tuple[str, bool]] = []
        user = os.geteuid()
        with os.scandir(descriptor) as entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue  # gone meanwhile
                self._names += 1
                if not stat.S_ISDIR(status.st_mode):
                    if status.st_nlink > 1:
                        self._once(status)
                    else:
                        self._add(status)
                    continue
                self._add(status)
                if status.st_dev == device:
                    is_closed = status.st_mode & _OPEN_TO_OWNER != _OPEN_TO_OWNER and status.st_uid == user != 0
                    folders.append((entry.name, is_closed))
        if folders and depth == _DEPTH:
            self.whole = False
            return
        for name, is_closed in folders:
            if is_closed:
                self._open_closed(name, descriptor, device, depth + 1)
            else:
                self._enter(name, descriptor, device, depth + 1)

    def _enter(self, name: str, parent: int, device: int, depth: int) -> None:
        try:
            descriptor = os.open(name, _FOLDER, dir_fd=parent)
        except OSError as error:
            # Gone meanwhile; or there are no more descriptors, and nobody knows what is in it.
            self.whole = self.whole and error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
            return
        try:
            if os.fstat(descriptor).st_dev == device:
                self._folder(descriptor, device, depth)
        finally:
            os.close(descriptor)

    def _open_closed(self, name: str, parent: int, device: int, depth: int) -> None:
        """Look into a folder that its owner, who this is, has closed: it takes as much room as any other."""
        try:
            handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        except OSError:
            return
        place = f"/proc/self/fd/{handle}"
        try:
            mode = stat.S_IMODE(os.fstat(handle).st_mode)
            os.chmod(place, mode | _OPEN_TO_OWNER)
            try:
                self._enter(name, parent, device, depth)
            finally:
                os.chmod(place, mode)
        except OSError:
            self.whole = False
        finally:
            os.close(handle)

    def _once(self, status: os.stat_result) -> None:
        identity = (status.st_dev, status.st_ino)
        if identity not in self._seen:
            self._seen.add(identity)
            self._add(status)

    def _add(self, status: os.stat_result) -> None:
        self.bytes += status.st_blocks * 512
        self.entries += 1
        most = self._most_entries
        if most and (self.entries > 2 * most or self._names > _NAMES_FOR_ONE * most):
            raise _TooManyError


def main(order: Any) -> None:
    """Measure a JSON order (``roots``, ``processes`` or null for all, ``most_entries``) and print JSON."""
    os.nice(10)
    processes = order["processes"]
    if processes is None:
        processes = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    found = measure(order["roots"], processes, order["most_entries"])
    sys.stdout.write(json.dumps({"bytes": found.bytes, "entries": found.entries, "whole": found.whole}) + "\n")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
