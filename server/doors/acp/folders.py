"""The folders that are open in an editor, on the disk of its machine: what is in them, and what is outside."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

GIT_SECONDS: Final = 20.0
MAX_FILES: Final = 5_000
_LEFT_OUT: Final = frozenset({".git", ".hg", ".venv", "node_modules", "__pycache__"})


class OutsideError(Exception):
    """A path that is none of the editor's; the message is for the model."""


class Listing(NamedTuple):
    """Files by their paths, in order; `is_cut`: there are more."""

    files: list[str]
    is_cut: bool


class Folders:
    """The open folders; the first is where relative paths begin."""

    def __init__(self, folders: Sequence[str]) -> None:
        self.home, *self.others = folders
        self._real = [os.path.realpath(folder) for folder in folders]

    def path(self, given: object) -> str:
        """The absolute path that is meant.

        Raises:
            OutsideError: it is outside of the open folders, through links as well, or no path.
        """
        if not isinstance(given, str) or not given or "\0" in given:
            raise OutsideError("path: is missing; name a file or folder of the user's")
        whole = os.path.normpath(os.path.join(self.home, given))
        real = os.path.realpath(whole)
        if not any(real == folder or real.startswith(folder.rstrip("/") + "/") for folder in self._real):
            raise OutsideError(f"path: {whole} is outside of the user's folder {self.home}; stay below it")
        return whole

    async def files(self, path: str) -> Listing:
        """The files below a folder (or the file that it is), by absolute paths.

        Without those that git ignores, where there is a repository, else without what tools have made.
        """
        names = await _known_to_git(path)
        found = await asyncio.to_thread(lambda: list(_plain(path, _walked(path) if names is None else names)))
        return Listing(sorted(found)[:MAX_FILES], len(found) > MAX_FILES)


async def _known_to_git(folder: str) -> list[str] | None:
    """What git has or would have below a folder; None where there is no repository."""
    try:
        async with asyncio.timeout(GIT_SECONDS):
            process = await asyncio.create_subprocess_exec(
                *("git", "-c", "core.fsmonitor=false", "ls-files", "-z", "-co", "--exclude-standard"),
                cwd=folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
            try:
                printed, _ = await process.communicate()
            finally:
                if process.returncode is None:
                    process.kill()
    except (OSError, TimeoutError):
        return None
    return sorted({os.fsdecode(name) for name in printed.split(b"\0") if name}) if process.returncode == 0 else None


def _plain(path: str, names: Iterable[str]) -> Iterator[str]:
    """Those that are files and have names that can be said."""
    if os.path.isfile(path):
        yield path
    for name in names:
        whole = os.path.join(path, name)
        if os.path.isfile(whole) and whole.isprintable():
            yield whole


def _walked(folder: str) -> Iterator[str]:
    count = 0
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT)
        for name in sorted(files):
            yield os.path.relpath(os.path.join(where, name), folder)
            count += 1
        if count > MAX_FILES:
            return
