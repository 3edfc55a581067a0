"""How files are shown: numbered lines, directories two levels deep, images."""

from __future__ import annotations

import base64
import os
from typing import List, NamedTuple, Optional

CONTEXT = 4
_DEPTH = 2
_ENTRIES = 10000
_MIMES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".bmp": "image/bmp",
}


class Image(NamedTuple):
    """An image for a model that sees: its type, and the whole of it as a data URL."""

    mime: str
    url: str


def numbered(lines: List[str], first: int, last: int, header: str) -> str:
    """Return the header and the lines from first to last, counted from one, with their numbers."""
    shown = [f"{number:6}\t{lines[number - 1]}\n" for number in range(first, last + 1)]
    return f"{header}\n{''.join(shown)}" if shown else f"{header}\n(the file is empty)\n"


def is_image(path: str) -> bool:
    """True when the name says that the file is an image."""
    return os.path.splitext(path)[1].lower() in _MIMES


def image(path: str, data: bytes) -> Optional[Image]:
    """Return the image that a file is, or None."""
    mime = _MIMES.get(os.path.splitext(path)[1].lower())
    if mime is None:
        return None
    return Image(mime, f"data:{mime};base64,{base64.b64encode(data).decode('ascii')}")


def directory(path: str) -> str:
    """Return the files and directories in a directory, two levels deep, without hidden ones, and how many those are."""
    entries, hidden, complete = _walk(path)
    text = f"The files and directories in {path}, up to {_DEPTH} levels deep, without hidden ones:\n"
    text += "".join(f"{entry}\n" for entry in sorted(entries))
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
            for entry in _scan(folder):
                if entry.name.startswith("."):
                    hidden += depth == 0
                    continue
                if len(entries) > _ENTRIES:
                    return entries, hidden, False
                is_directory = entry.is_dir()
                entries.append(entry.path + "/" if is_directory else entry.path)
                if is_directory and not entry.is_symlink():
                    following.append(entry.path)
        level = following
    return entries, hidden, True


def _scan(folder: str) -> "List[os.DirEntry[str]]":
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except OSError:
        return []  # one directory that cannot be read does not hide the others
