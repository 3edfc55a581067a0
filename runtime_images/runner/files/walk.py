"""Going through the files below a folder as a search does: no links, no hidden or ignored folders, nothing special."""

from __future__ import annotations

import os
from typing import Callable, Iterator, List, NamedTuple, Optional, Tuple

from .ignores import Level, level_above, level_of

_NOT_FILES = ("/proc", "/sys", "/dev")
"""Where files are something else, some of which never end."""


class Found(NamedTuple):
    """A file; ``relative`` is its path below the folder where the walk began."""

    path: str
    relative: str
    changed: int
    size: int


class Entry:
    """What a choice is made about."""

    def __init__(self, entry: "os.DirEntry[str]", relative: str, level: Optional[Level]) -> None:
        self.name = entry.name
        self.relative = relative
        self._path = entry.path
        self._level = level

    @property
    def is_hidden(self) -> bool:
        """True when its name begins with a dot."""
        return self.name.startswith(".")

    @property
    def is_ignored(self) -> bool:
        """True when an ignore file says to pass over it."""
        return self._level is not None and self._level.ignores(self._path, is_directory=False)


class Walk:
    """One walk; ``unreadable`` counts the folders that could not be read."""

    def __init__(self, root: str, takes: Callable[[Entry], bool], enters_hidden: Callable[[str], bool]) -> None:
        """``takes`` chooses files; ``enters_hidden`` says, by their names, which hidden folders to go into."""
        self._root = root
        self._takes = takes
        self._enters_hidden = enters_hidden
        self.unreadable = 0

    def files(self) -> Iterator[Found]:
        """Go through the tree; each folder is seen once, links are not followed."""
        waiting: List[Tuple[str, str, Optional[Level]]] = [(self._root, "", level_above(self._root))]
        while waiting:
            folder, prefix, above = waiting.pop()
            try:
                with os.scandir(folder) as found:
                    entries = list(found)
            except OSError:
                self.unreadable += 1
                continue
            level = level_of(folder, above, (entry.name for entry in entries))
            for entry in entries:
                relative = prefix + entry.name
                if entry.is_dir(follow_symlinks=False):
                    if self._enters(entry, level):
                        waiting.append((entry.path, relative + "/", level))
                elif entry.is_file(follow_symlinks=False) and self._takes(Entry(entry, relative, level)):
                    try:
                        status = entry.stat(follow_symlinks=False)
                    except OSError:
                        continue  # it was just removed
                    yield Found(entry.path, relative, status.st_mtime_ns, status.st_size)

    def _enters(self, entry: "os.DirEntry[str]", level: Optional[Level]) -> bool:
        if entry.path in _NOT_FILES or (entry.name.startswith(".") and not self._enters_hidden(entry.name)):
            return False
        return level is None or not level.ignores(entry.path, is_directory=True)
