"""Searches for text and for files."""

from __future__ import annotations

import fnmatch
import os
from typing import Iterator, List, Optional, Tuple

from ..files import encoding
from .reading import lines_of
from .viewing import is_file, opened_path

FILES_LIMIT = 100
_FOUND_LIMIT = 1000
_LINE_LIMIT = 500
_SIZE_LIMIT = 20 * 1024 * 1024


def search_dir(search_term: str, dir_path: str = "./") -> None:
    """Show the lines with a text in all files of a folder and those below it; hidden ones are left out.

    Args:
        search_term: the text.
        dir_path: the folder.
    """
    if not _is_folder(dir_path):
        return
    found: List[Tuple[str, int, str]] = []
    files = 0
    for path in _files(dir_path):
        lines = _lines_with(path, search_term)
        files += bool(lines)
        found += [(path, number, line) for number, line in lines]
        if files > FILES_LIMIT:
            print(
                f'More than {FILES_LIMIT} files contain "{search_term}" in {dir_path}. Search for something narrower.'
            )
            return
    _report(search_term, dir_path, [f"{path} (Line {number}): {line}" for path, number, line in found])


def search_file(search_term: str, file_path: Optional[str] = None) -> None:
    """Show the lines with a text in a file.

    Args:
        search_term: the text.
        file_path: the file; the open one by default.
    """
    path = file_path or opened_path()
    if path is None:
        print("ERROR: No file is named or open. Name one, or use open_file(path) first.")
    elif is_file(path):
        _report(search_term, path, [f"Line {number}: {line}" for number, line in _lines_with(path, search_term)])


def find_file(file_name: str, dir_path: str = "./") -> None:
    """Show the paths of the files with a text in their names, in a folder and those below it.

    Args:
        file_name: the name, a part of it, or a pattern such as ``*.csv``.
        dir_path: the folder.
    """
    if _is_folder(dir_path):
        _report(file_name, dir_path, [path for path in _files(dir_path) if _is_called(path, file_name)])


def _is_folder(path: str) -> bool:
    if os.path.isdir(path):
        return True
    if os.path.isfile(path):
        print(f"ERROR: {path} is a file, not a folder.")
    else:
        print(f"ERROR: There is no folder {path or repr(path)}.")
    return False


def _files(folder: str) -> Iterator[str]:
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith("."):
                yield os.path.join(root, name)


def _is_called(path: str, wanted: str) -> bool:
    name = os.path.basename(path)
    return wanted in name or fnmatch.fnmatchcase(name, wanted)


def _lines_with(path: str, term: str) -> List[Tuple[int, str]]:
    """Numbers and texts of a file's lines with a text; none of those that are no text, or very large."""
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > _SIZE_LIMIT:
            return []
        with open(path, "rb") as file:
            content = file.read()
    except OSError:
        return []
    if encoding.is_binary(content):
        return []
    return [(number, line.strip()[:_LINE_LIMIT]) for number, line in enumerate(lines_of(content), 1) if term in line]


def _report(term: str, place: str, found: List[str]) -> None:
    if not found:
        print(f'No matches found for "{term}" in {place}')
        return
    print(f'[Found {len(found)} matches for "{term}" in {place}]')
    for line in found[:_FOUND_LIMIT]:
        print(line)
    if len(found) > _FOUND_LIMIT:
        print(f"({len(found) - _FOUND_LIMIT} more are not shown)")
    print(f'[End of matches for "{term}" in {place}]')
