"""Shared parts of the editing tools: checks and limits, earlier versions, and how files are shown."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Callable, Dict, List, Optional, Tuple

from ..core.text import printable
from . import disk
from .diff import unified
from .text_file import decode, is_binary

FILE_LIMIT = 10 * 1024 * 1024
RESPONSE_LIMIT = 16000
CONTENT_LIMIT = 512 * 1024
VERSIONS = 10
DISK_LIMIT = 512 * 1024 * 1024
_MEMORY_LIMIT = 32 * 1024 * 1024
_LISTED_DEPTH = 2
_LISTED_ENTRIES = 10000


class EditError(Exception):
    """The edit cannot be done; the message is for the model."""


def outcome_of(command: str, path: str, work: Callable[[Dict[str, Any]], Dict[str, Any]]) -> Dict[str, Any]:
    """Return the result of a command, extended by the work, which gets it; errors are a result too."""
    result: Dict[str, Any] = {"command": command, "path": path, "is_error": False, "prev_exist": False}
    result.update(old_content=None, new_content=None, diff=None)
    try:
        result.update(work(result))
    except (EditError, disk.FileError) as error:
        result.update(text=str(error), is_error=True)
    return result


def change_of(path: str, old: Optional[bytes], new: bytes) -> Dict[str, Any]:
    """Return a result's fields about a change: the contents, each if not too long, and the diff."""
    before, after = None if old is None else decode(old).text, decode(new).text
    return {
        "old_content": before if before is not None and len(before) <= CONTENT_LIMIT else None,
        "new_content": after if len(after) <= CONTENT_LIMIT else None,
        "diff": unified(before or "", after, path),
    }


class EditHistory:
    """The last ten versions of each file, newest last: on disk, or in memory where the disk does not take them.

    For worker threads, one file by one thread at a time. A file is the same by whatever link it is reached. The total
    is bounded: files not edited for the longest time go first.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._memory: Dict[str, List[bytes]] = {}
        self._added = DISK_LIMIT  # bytes since it was last looked how many there are; nobody has looked yet

    def push(self, path: str, content: bytes) -> None:
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
            saved = self._memory.setdefault(path, [])
            saved.append(content)
            del saved[:-VERSIONS]
            while sum(len(version) for versions in self._memory.values() for version in versions) > _MEMORY_LIMIT:
                del self._memory[next(iter(self._memory))]

    def pop(self, path: str) -> Optional[bytes]:
        """Return and forget the newest version; None when there is none."""
        path = os.path.realpath(path)
        saved = self._memory.get(path)
        if saved:
            content = saved.pop()
            if not saved:
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
            with contextlib.suppress(OSError):
                versions = [os.path.join(folder.path, name) for name in os.listdir(folder.path)]
                total += sum(os.path.getsize(version) for version in versions)
                if total > DISK_LIMIT:
                    for version in versions:
                        os.unlink(version)
                    os.rmdir(folder.path)

    def _folder(self, path: str) -> str:
        import hashlib  # it loads a cryptographic library, which the runner's start should not wait for

        return os.path.join(self._directory, hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:32])

    def _numbers(self, folder: str) -> List[int]:
        return sorted(int(name) for name in os.listdir(folder) if name.isdigit())


def exists(path: str) -> bool:
    """Return whether there is something at an absolute path; `FileError` where that cannot be found out."""
    return os.path.isabs(path) and disk.kind(path) != "missing"


def require_absolute(path: str, directory: str) -> None:
    """Refuse a relative path; ``directory`` is where it might have been meant."""
    if os.path.isabs(path):
        return
    text = f"Invalid `path` parameter: {path}. It must be an absolute path, beginning with `/`."
    candidate = os.path.normpath(os.path.join(directory, path))
    raise EditError(f"{text} Did you mean {candidate}?" if path and os.path.lexists(candidate) else text)


def require_ordinary(path: str) -> None:
    """Refuse what is neither file nor directory: reading it might never end."""
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


def numbered(lines: List[str], first: int, last: int, header: str) -> str:
    """Return the header and the lines from first to last, counted from one, with their numbers."""
    shown = [f"{number:6}\t{lines[number - 1]}\n" for number in range(first, last + 1)]
    return f"{header}\n{''.join(shown)}" if shown else f"{header}\n(the file is empty)\n"


def directory(path: str) -> str:
    """List a directory two levels deep, without hidden entries, and say how many those are."""
    entries, hidden, complete = _listed(path)
    text = f"The files and directories in {path}, up to {_LISTED_DEPTH} levels deep, without hidden ones:\n"
    text += "".join(f"{printable(entry)}\n" for entry in sorted(entries))
    if not complete:
        text += f"[… only the first {_LISTED_ENTRIES} entries are listed …]\n"
    if hidden:
        word = "entry in this directory is" if hidden == 1 else "entries in this directory are"
        text += f"\n{hidden} hidden {word} not shown; `ls -la {path}` lists them.\n"
    return text


def _listed(top: str) -> Tuple[List[str], int, bool]:
    entries: List[str] = [top.rstrip("/") + "/"]
    hidden = 0
    folders = [(top, 1)]
    for folder, depth in folders:
        try:
            with os.scandir(folder) as scanned:
                found = sorted(scanned, key=lambda entry: entry.name)
        except OSError as error:
            if depth == 1:
                raise disk.failure(error, top) from error
            continue  # one that cannot be read does not hide the others
        for entry in found:
            if entry.name.startswith("."):
                hidden += depth == 1
                continue
            if len(entries) > _LISTED_ENTRIES:
                return entries, hidden, False
            try:
                is_directory = entry.is_dir()
            except OSError:  # a link to itself, for instance
                is_directory = False
            entries.append(entry.path + "/" if is_directory else entry.path)
            if is_directory and not entry.is_symlink() and depth < _LISTED_DEPTH:
                folders.append((entry.path, depth + 1))  # its turn comes after those of its level
    return entries, hidden, True
