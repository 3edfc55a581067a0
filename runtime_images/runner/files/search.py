"""Searching files by name and by content, as a program of its own.

It is run in a process of its own because matching a regular expression cannot be interrupted from inside, and would
keep the runner from everything else for as long as it takes. The order is the argument, as JSON; the result is printed.
"""

from __future__ import annotations

import heapq
import io
import json
import os
import re
import sys
import warnings
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

from ..core.names import below, shown
from . import globs, ripgrep
from .encoding import is_binary
from .walk import Entry, Found, Walk

FILES_LIMIT = 500000
SIZE_LIMIT = 256 * 1024 * 1024
_SAMPLE = 64 * 1024
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_LINE_LIMIT = 16 * 1024 * 1024


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
    pattern = _regex(order["pattern"])
    root = _directory(order["path"])
    include: Optional[str] = _plain(order["include"]) if order["include"] else None
    walk = Walk(root, _chooser(include), lambda name: False)
    found: List[Found] = []
    passed = 0
    for file in walk.files():
        if file.size > SIZE_LIMIT:
            passed += 1
        elif len(found) < FILES_LIMIT:
            found.append(file)
        else:
            raise SearchError(f"There are more than {FILES_LIMIT} files below {root}; give a folder further down.")
    found.sort(key=_newest_first)
    limit = order["limit"]
    program = ripgrep.program() if order["ripgrep"] and ripgrep.reads_alike(order["pattern"]) else None
    matches = list(_first(limit + 1, _matching(found, pattern, order["pattern"], program)))
    return _result(root, matches, limit, walk, passed)


def _glob(order: Dict[str, Any]) -> Dict[str, Any]:
    pattern, path = _begun(_plain(order["pattern"]), order["path"])
    if pattern.endswith("/"):
        pattern += "**"  # a folder: what is in it
    if "**" not in pattern and not pattern.startswith("/"):
        pattern = "**/" + pattern
    base, rest = globs.split_base(pattern)
    if not base.startswith("/") and not os.path.isdir(os.path.join(_directory(path), base)):
        base, rest = "", pattern  # nothing can match
    root = _directory(os.path.normpath(os.path.join(path, base)))
    if "**" not in rest:
        rest = "**/" + rest
    parts = rest.split("/")
    whole = globs.compiled(rest)
    dotted = [globs.compiled(part) for part in parts if part.startswith(".")]

    def named(name: str) -> bool:
        return any(part.fullmatch(name) is not None for part in dotted)

    def takes(entry: Entry) -> bool:
        if entry.is_hidden and not named(entry.name):
            return False
        return whole.fullmatch(entry.relative) is not None and not entry.is_ignored

    walk = Walk(root, takes, named)
    limit = order["limit"]
    return _result(root, heapq.nsmallest(limit + 1, walk.files(), key=_newest_first), limit, walk, 0)


def _plain(pattern: str) -> str:
    """Return the pattern of a path without what says nothing: ``./src//a`` is ``src/a``."""
    pattern = re.sub("/{2,}", "/", pattern)
    return re.sub(r"\A(?:\./)+(?=.)", "", pattern)


def _begun(pattern: str, path: str) -> Tuple[str, str]:
    """Return pattern and folder for a pattern that begins above the folder, or at home."""
    if pattern.startswith("~/"):
        pattern = _plain(below(path, pattern))
    path = os.path.normpath(path)
    while pattern.startswith("../"):
        path, pattern = os.path.dirname(path), pattern[3:]
    return pattern, path


def _regex(pattern: str) -> "re.Pattern[str]":
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return re.compile(pattern, re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        raise SearchError(f"Invalid regex pattern: {error}") from None


def _directory(path: str) -> str:
    if not os.path.isdir(path):
        missing = not os.path.lexists(path)
        raise SearchError(f"{shown(path)} {'does not exist' if missing else 'is not a directory'}; give a directory.")
    return os.path.normpath(path)


def _chooser(include: Optional[str]) -> Callable[[Entry], bool]:
    """Return what chooses the files to look into: those that ``include`` names, or else all that are not put aside."""
    if include is None or include.startswith("!"):
        excluded = globs.compiled(include[1:]) if include is not None else None

        def takes(entry: Entry) -> bool:
            if entry.is_hidden or (excluded is not None and _names(excluded, include or "", entry)):
                return False
            return not entry.is_ignored

        return takes
    wanted = globs.compiled(include.lstrip("/"))
    return lambda entry: _names(wanted, include or "", entry)


def _names(pattern: "re.Pattern[str]", source: str, entry: Entry) -> bool:
    return pattern.fullmatch(entry.relative if "/" in source else entry.name) is not None


def _matching(found: List[Found], pattern: "re.Pattern[str]", source: str, program: Optional[str]) -> Iterator[Found]:
    """Yield the files with a line that matches, in the given order."""
    if program is None:
        yield from (file for file in found if _holds(file.path, pattern))
        return
    for batch in ripgrep.batches(found):
        holding, unclear = ripgrep.search(program, source, [file.path for file in batch])
        for file in batch:
            name = os.fsencode(file.path)
            if _holds(file.path, pattern) if name in unclear else name in holding and not _is_binary(file.path):
                yield file


def _holds(path: str, pattern: "re.Pattern[str]") -> bool:
    """Return whether a text file has a line that matches."""
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
    sample = _sample(path)
    return sample is None or is_binary(sample)


def _sample(path: str) -> Optional[bytes]:
    """Return what the file begins with; None when it cannot be read."""
    try:
        with open(os.open(path, _FLAGS), "rb") as file:
            return file.read(_SAMPLE)
    except OSError:
        return None


def _newest_first(file: Found) -> Tuple[int, str]:
    return -file.changed, file.path


def _first(count: int, files: Iterable[Found]) -> Iterator[Found]:
    for number, file in enumerate(files, 1):
        yield file
        if number == count:
            return


def _result(root: str, matches: List[Found], limit: int, walk: Walk, passed: int) -> Dict[str, Any]:
    return {
        "root": shown(root),
        "files": [shown(file.path) for file in matches[:limit]],
        "truncated": len(matches) > limit,
        "unreadable": walk.unreadable,
        "too_large": passed,
    }
