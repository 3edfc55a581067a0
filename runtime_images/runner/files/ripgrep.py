"""Looking into files with ripgrep, where that finds exactly what Python's regular expressions would find.

The two engines read many patterns differently, and some texts: what counts as a letter, a blank or the other case of
a letter beyond ASCII, what a dot matches among bytes that are no text. So ripgrep is asked about patterns that mean the
same to both, and about files of plain ASCII; all others are unclear, and left to whoever asks.
"""

from __future__ import annotations

import os
import re
from typing import Collection, Iterator, List, NamedTuple, Optional, Set

from .walk import Found

_ARGUMENTS_LIMIT = 512 * 1024

_ESCAPE = r"\\[dDwWsSt.^$*+?()\[\]{}|\\/-]"
_CLASS = rf"\[\^?(?:[A-Za-z0-9](?:-[A-Za-z0-9])?|[ _.,:;/@#%=+*!?'\"<>()$|{{}}]|{_ESCAPE})+\]"
_REPEATED = rf"(?:[ \w!\"#%&',/:;<=>@`~-]|\.|\)|{_ESCAPE}|{_CLASS})(?:(?:[*+?]|\{{\d+(?:,\d*)?\}})\??)?"
_ALIKE = re.compile(rf"(?:{_REPEATED}|\^|\$|\\b|\||\((?!\?)|\(\?:)*", re.ASCII)
"""Patterns that are the same to both; Python has already found that they are patterns."""

_UNCLEAR = r"(?-u)[\x1c-\x1f\x80-\xff]|\r[^\n]"


class SearchedFiles(NamedTuple):
    """The paths of files with a line that matches, and of those of which nothing is known."""

    holding: Collection[bytes]
    unclear: Collection[bytes]


def program() -> Optional[str]:
    """Return the path of ripgrep, if it is installed."""
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder, "rg")
        if folder and os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def reads_alike(pattern: str) -> bool:
    """Return whether a pattern of Python's means the same to ripgrep; no when in doubt."""
    return _ALIKE.fullmatch(pattern) is not None


def batches(found: List[Found]) -> Iterator[List[Found]]:
    """Divide files such that each part fits on a command line."""
    batch: List[Found] = []
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


def search(path: str, pattern: str, files: List[str]) -> SearchedFiles:
    """Ask ripgrep, which is at that path, for the files with a line that matches whatever the case."""
    unclear = _listed(path, _UNCLEAR, files)
    holding = _listed(path, pattern, files) if unclear is not None else None
    if unclear is None or holding is None:  # it fails, or does not take the pattern
        return SearchedFiles((), {os.fsencode(file) for file in files})
    return SearchedFiles(holding, unclear)


def _listed(path: str, pattern: str, files: List[str]) -> Optional[Set[bytes]]:
    import subprocess  # only here: the rest of the search starts faster without it

    options = ["--no-config", "--files-with-matches", "--null", "--text", "--crlf", "--ignore-case", "--no-messages"]
    arguments = [path, *options, "--encoding=none", f"--regexp={pattern}", "--", *files]
    done = subprocess.run(arguments, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    # It also fails with 2 when it could not read one of the files, but then has nothing to say about the pattern.
    if done.returncode not in (0, 1) and (done.stderr.strip() or done.returncode != 2):
        return None
    return set(done.stdout.split(b"\0"))
