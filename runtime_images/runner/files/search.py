"""The search program: files by name and by content, in a process of its own; JSON in and out.

Matching a regular expression cannot be interrupted from inside and would block the runner.
"""

from __future__ import annotations

import heapq
import io
import json
import os
import re
import sys
import warnings
from itertools import islice
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from ..core.arguments import resolve
from ..core.text import printable
from .patterns import IgnoreLevel, compiled, level_above, level_of, split_base
from .text_file import is_binary

FILES_LIMIT = 500000
SIZE_LIMIT = 256 * 1024 * 1024
_SAMPLE = 64 * 1024
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_LINE_LIMIT = 16 * 1024 * 1024
_ARGUMENTS_LIMIT = 512 * 1024
_NOT_FILES = ("/proc", "/sys", "/dev")
"""Folders of special files, some of which never end."""


class SearchError(Exception):
    """The search cannot be done; the message is for the model."""


def main(order: str) -> int:
    """Do the search and print its result, or what is wrong with it."""
    sys.stdout.write(json.dumps(outcome(json.loads(order))))
    return 0


def outcome(order: Dict[str, Any]) -> Dict[str, Any]:
    """Do the search and return its result; ``error`` says what is wrong with it."""
    try:
        return _grep(order) if order["kind"] == "grep" else _glob(order)
    except SearchError as error:
        return {"error": str(error)}


def _grep(order: Dict[str, Any]) -> Dict[str, Any]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pattern = re.compile(order["pattern"], re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        raise SearchError(f"Invalid regex pattern: {error}") from None
    root = _directory(order["path"])
    walk = Walk(root, _chooser(_plain(order["include"] or "")), lambda name: False)
    found: List[FoundFile] = []
    too_large = 0
    for file in walk.files():
        if file.size > SIZE_LIMIT:
            too_large += 1
        elif len(found) < FILES_LIMIT:
            found.append(file)
        else:
            raise SearchError(f"There are more than {FILES_LIMIT} files below {root}; give a folder further down.")
    found.sort()
    program = _ripgrep() if order["ripgrep"] and reads_alike(order["pattern"]) else None
    if program is None:
        matching: Iterator[FoundFile] = (file for file in found if _holds(file.path, pattern))
    else:
        matching = _matching(program, found, pattern, order["pattern"])
    limit = order["limit"]
    return _result(walk, list(islice(matching, limit + 1)), limit, too_large)


def _glob(order: Dict[str, Any]) -> Dict[str, Any]:
    pattern, path = _plain(order["pattern"]), order["path"]
    if pattern.startswith("~/"):
        pattern = _plain(resolve(path, pattern))
    path = os.path.normpath(path)
    while pattern.startswith("../"):
        path, pattern = os.path.dirname(path), pattern[3:]
    if pattern.endswith("/"):
        pattern += "**"  # a folder: what is in it
    if "**" not in pattern and not pattern.startswith("/"):
        pattern = "**/" + pattern
    base, rest = split_base(pattern)
    if not base.startswith("/") and not os.path.isdir(os.path.join(_directory(path), base)):
        base, rest = "", pattern  # nothing can match
    root = _directory(os.path.normpath(os.path.join(path, base)))
    if "**" not in rest:
        rest = "**/" + rest
    whole = compiled(rest)
    dotted = [compiled(part) for part in rest.split("/") if part.startswith(".")]

    def named(name: str) -> bool:
        return any(part.fullmatch(name) is not None for part in dotted)

    def takes(entry: Entry) -> bool:
        if entry.is_hidden and not named(entry.name):
            return False
        return whole.fullmatch(entry.relative) is not None and not entry.is_ignored

    walk = Walk(root, takes, named)
    limit = order["limit"]
    return _result(walk, heapq.nsmallest(limit + 1, walk.files()), limit, 0)


def _plain(pattern: str) -> str:
    """The pattern of a path normalized: ``./src//a`` is ``src/a``."""
    pattern = re.sub("/{2,}", "/", pattern)
    return re.sub(r"\A(?:\./)+(?=.)", "", pattern)


def _directory(path: str) -> str:
    if not os.path.isdir(path):
        missing = not os.path.lexists(path)
        raise SearchError(
            f"{printable(path)} {'does not exist' if missing else 'is not a directory'}; give a directory."
        )
    return os.path.normpath(path)


def _chooser(include: str) -> "Callable[[Entry], bool]":

    def names(pattern: "re.Pattern[str]", entry: Entry) -> bool:
        return pattern.fullmatch(entry.relative if "/" in include else entry.name) is not None

    if include and not include.startswith("!"):
        included = compiled(include.lstrip("/"))
        return lambda entry: names(included, entry)
    excluded = compiled(include[1:]) if include else None
    return lambda entry: not (entry.is_hidden or (excluded is not None and names(excluded, entry)) or entry.is_ignored)


def _result(walk: "Walk", matches: "List[FoundFile]", limit: int, too_large: int) -> Dict[str, Any]:
    return {
        "root": printable(walk.root),
        "files": [printable(file.path) for file in matches[:limit]],
        "truncated": len(matches) > limit,
        "unreadable": walk.unreadable,
        "too_large": too_large,
    }


# Going through the files


class FoundFile(NamedTuple):
    """A file, with its size in bytes; sorted, the newest comes first: ``age`` is minus its modification time, in ns."""

    age: int
    path: str
    size: int


class Entry:
    """A candidate file; ``relative`` is its path below the folder where the walk began."""

    def __init__(self, entry: "os.DirEntry[str]", relative: str, level: Optional[IgnoreLevel]) -> None:
        self.name = entry.name
        self.relative = relative
        self.is_hidden = entry.name.startswith(".")
        self._path = entry.path
        self._level = level

    @property
    def is_ignored(self) -> bool:
        return self._level is not None and self._level.ignores(self._path, is_directory=False)


class Walk:
    """One walk through a tree, each folder once, without links and ignored folders; ``unreadable`` counts folders.

    ``takes`` chooses files; ``enters_hidden`` says, by name, which hidden folders to enter.
    """

    def __init__(self, root: str, takes: Callable[[Entry], bool], enters_hidden: Callable[[str], bool]) -> None:
        self.root = root
        self.unreadable = 0
        self._takes = takes
        self._enters_hidden = enters_hidden

    def files(self) -> Iterator[FoundFile]:
        waiting: List[Tuple[str, str, Optional[IgnoreLevel]]] = [(self.root, "", level_above(self.root))]
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
                    is_hidden = entry.name.startswith(".") and not self._enters_hidden(entry.name)
                    if entry.path in _NOT_FILES or is_hidden:
                        continue
                    if level is None or not level.ignores(entry.path, is_directory=True):
                        waiting.append((entry.path, relative + "/", level))
                elif entry.is_file(follow_symlinks=False) and self._takes(Entry(entry, relative, level)):
                    try:
                        status = entry.stat(follow_symlinks=False)
                    except OSError:
                        continue  # it was just removed
                    yield FoundFile(-status.st_mtime_ns, entry.path, status.st_size)


# Looking into files


def _holds(path: str, pattern: "re.Pattern[str]") -> bool:
    try:
        with open(os.open(path, _FLAGS), "rb") as file:
            sample = file.read(_SAMPLE)
            if is_binary(sample):
                return False
            encoding = "utf-16" if sample[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
            if len(sample) < _SAMPLE:
                lines = sample.decode(encoding, "surrogateescape").split("\n")
                if not lines[-1]:
                    lines.pop()  # a final line end begins no further line
                return any(pattern.search(line[:-1] if line[-1:] == "\r" else line) for line in lines)
            file.seek(0)
            with io.TextIOWrapper(file, encoding, "surrogateescape", "\n") as text:
                for line in iter(lambda: text.readline(_LINE_LIMIT), ""):
                    line = line[:-1] if line[-1:] == "\n" else line
                    if pattern.search(line[:-1] if line[-1:] == "\r" else line) is not None:
                        return True
    except (OSError, UnicodeError):
        pass
    return False


def _is_binary(path: str) -> bool:
    """True for a file that cannot be read, too."""
    try:
        with open(os.open(path, _FLAGS), "rb") as file:
            return is_binary(file.read(_SAMPLE))
    except OSError:
        return True


# With ripgrep, where it finds exactly what Python's regular expressions would find. The two engines read many patterns
# differently, and some texts: what counts as a letter, a blank or the other case of a letter beyond ASCII, what a dot
# matches among bytes that are no text. So ripgrep is asked about patterns that mean the same to both, and about files
# of plain ASCII; all others are unclear, and left to Python.

_ESCAPE = r"\\[dDwWsSt.^$*+?()\[\]{}|\\/-]"
_CLASS = rf"\[\^?(?:[A-Za-z0-9](?:-[A-Za-z0-9])?|[ _.,:;/@#%=+*!?'\"<>()$|{{}}]|{_ESCAPE})+\]"
_REPEATED = rf"(?:[ \w!\"#%&',/:;<=>@`~-]|\.|\)|{_ESCAPE}|{_CLASS})(?:(?:[*+?]|\{{\d+(?:,\d*)?\}})\??)?"
_ALIKE = re.compile(rf"(?:{_REPEATED}|\^|\$|\\b|\||\((?!\?)|\(\?:)*", re.ASCII)
_UNCLEAR = r"(?-u)[\x1c-\x1f\x80-\xff]|\r[^\n]"


def reads_alike(pattern: str) -> bool:
    """Return whether a Python pattern means the same to ripgrep; False when in doubt."""
    return _ALIKE.fullmatch(pattern) is not None


def _ripgrep() -> Optional[str]:
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder, "rg")
        if folder and os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def _matching(program: str, found: List[FoundFile], pattern: "re.Pattern[str]", source: str) -> Iterator[FoundFile]:
    for batch in _batches(found):
        files = [file.path for file in batch]
        unclear = _listed(program, _UNCLEAR, files)
        holding = _listed(program, source, files) if unclear is not None else None
        for file in batch:
            name = os.fsencode(file.path)
            if unclear is None or holding is None or name in unclear:  # it fails, or does not take the pattern
                if _holds(file.path, pattern):
                    yield file
            elif name in holding and not _is_binary(file.path):
                yield file


def _batches(found: List[FoundFile]) -> Iterator[List[FoundFile]]:
    batch: List[FoundFile] = []
    size = 0
    for file in found:
        length = len(os.fsencode(file.path)) + 9  # with its end and its pointer
        if size + length > _ARGUMENTS_LIMIT:
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += length
    if batch:
        yield batch


def _listed(program: str, pattern: str, files: List[str]) -> Optional[Set[bytes]]:
    """The files with a line that matches, ignoring case; None where ripgrep cannot tell."""
    import subprocess  # only here: the rest of the search starts faster without it

    options = ["--no-config", "--files-with-matches", "--null", "--text", "--crlf", "--ignore-case", "--no-messages"]
    arguments = [program, *options, "--encoding=none", f"--regexp={pattern}", "--", *files]
    done = subprocess.run(arguments, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    # It also fails with 2 when it could not read one of the files, but then has nothing to say about the pattern.
    if done.returncode not in (0, 1) and (done.stderr.strip() or done.returncode != 2):
        return None
    return set(done.stdout.split(b"\0"))
