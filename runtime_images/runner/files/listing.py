"""How files are shown: numbered lines, directories two levels deep."""

from __future__ import annotations

import os
from typing import List

from ..core.text import printable
from . import disk

CONTEXT = 4
_DEPTH = 2
_ENTRIES = 10000


def numbered(lines: List[str], first: int, last: int, header: str) -> str:
    """Return the header and the lines from first to last, counted from one, with their numbers."""
    shown = [f"{number:6}\t{lines[number - 1]}\n" for number in range(first, last + 1)]
    return f"{header}\n{''.join(shown)}" if shown else f"{header}\n(the file is empty)\n"


def directory(path: str) -> str:
    """Return the files and directories in a directory, two levels deep, without hidden ones, and how many those are.

    Raises:
        FileError: the directory cannot be read.
    """
    entries, hidden, complete = _walk(path)
    text = f"The files and directories in {path}, up to {_DEPTH} levels deep, without hidden ones:\n"
    text += "".join(f"{printable(entry)}\n" for entry in sorted(entries))
    if not complete:
        text += f"[… only the first {_ENTRIES} entries are listed …]\n"
    if hidden:
        word = "entry in this directory is" if hidden == 1 else "entries in this directory are"
        text += f"\n{hidden} hidden {word} not shown; `ls -la {path}` lists them.\n"
    return text


def _walk(top: str) -> "tuple[List[str], int, bool]":
    entries: List[str] = [top.rstrip("/") + "/"]
    hidden = 0
    level = [top]
    for depth in range(_DEPTH):
        following: List[str] = []
        for folder in level:
            try:
                found = _scan(folder)
            except OSError as error:
                if depth == 0:
                    raise disk.failure(error, top) from error
                continue  # one that cannot be read does not hide the others
            for entry in found:
                if entry.name.startswith("."):
                    hidden += depth == 0
                    continue
                if len(entries) > _ENTRIES:
                    return entries, hidden, False
                is_directory = _is_directory(entry)
                entries.append(entry.path + "/" if is_directory else entry.path)
                if is_directory and not entry.is_symlink():
                    following.append(entry.path)
        level = following
    return entries, hidden, True


def _is_directory(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, for instance
        return False


def _scan(folder: str) -> "List[os.DirEntry[str]]":
    with os.scandir(folder) as found:
        return sorted(found, key=lambda entry: entry.name)
