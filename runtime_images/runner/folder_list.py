"""What is in a folder of the workspace, and what of that is usually not looked at."""

from __future__ import annotations

import os
import stat
from typing import Any, Dict, List, Optional, Tuple

from .beneath import Beneath, readable
from .disk import FileError, failure
from .ignores import Rules

LIMIT = 10_000
HIDDEN = frozenset((".git", ".DS_Store", "node_modules", "__pycache__", "lost+found", ".vscode"))
"""Names that lists for people leave out."""
_RULES_BYTES = 1024 * 1024
Place = Tuple[bool, str, str]


class FolderList:
    """Serves ``folder.list``. Blocking; to be used from worker threads."""

    def __init__(self, beneath: Beneath) -> None:
        self._beneath = beneath

    def of(self, path: str, after: Optional[Place] = None) -> Dict[str, Any]:
        """The entries of a folder, folders first: name, kind, size, time of change, and whether they are passed over.

        ``after`` is where the list goes on: the place of an entry that was listed before (see `place_of`).

        Raises:
            FileError: it is no folder of the workspace, or cannot be read.
        """
        opened = self._beneath.open(path)
        try:
            if not opened.is_folder:
                raise FileError("not_a_file", f"{path} is a file, not a folder")
            with os.scandir(opened.descriptor) as found:
                places = [(place_of(_is_folder(one), readable(one.name)), one.name) for one in found]
            names = [name for place, name in sorted(places) if after is None or place > after]
            parts = self._beneath.parts(path)
            rules = self._rules()
            entries = [self._entry(opened.descriptor, name, parts, rules) for name in names[:LIMIT]]
        except OSError as error:
            raise failure(error, path) from error
        finally:
            os.close(opened.descriptor)
        return {"path": "/".join(parts), "entries": entries, "left_out": max(0, len(names) - LIMIT)}

    def _entry(self, folder: int, name: str, parts: List[str], rules: Rules) -> Dict[str, Any]:
        status: Optional[os.stat_result] = None
        is_link = False
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                is_link, status = True, os.stat(name, dir_fd=folder)
        except OSError:
            status = None  # a link to nothing, or something that was just removed
        kind = _kind(status)
        return {
            "name": readable(name),
            "kind": kind,
            "link": is_link,
            "size": status.st_size if status is not None and kind == "file" else None,
            "modified": status.st_mtime if status is not None else None,
            "hidden": name in HIDDEN or _is_ignored(rules, [*parts, name], kind == "folder"),
        }

    def _rules(self) -> Rules:
        """Those of the workspace's own ``.gitignore``."""
        try:
            opened = self._beneath.open(".gitignore")
        except FileError:
            return Rules(())
        with open(opened.descriptor, "rb") as file:
            if opened.is_folder:
                return Rules(())
            return Rules(os.fsdecode(file.read(_RULES_BYTES)).splitlines())


def place_of(is_folder: bool, name: str) -> Place:
    """What lists are sorted by."""
    return (not is_folder, name.lower(), name)


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # a link that leads in circles


def _kind(status: Optional[os.stat_result]) -> str:
    if status is None:
        return "missing"
    if stat.S_ISDIR(status.st_mode):
        return "folder"
    return "file" if stat.S_ISREG(status.st_mode) else "other"


def _is_ignored(rules: Rules, parts: List[str], is_folder: bool) -> bool:
    """Whether the rules pass over it, or over a folder that it is in."""
    ends = range(1, len(parts) + 1) if rules else ()
    return any(rules.ignores("/".join(parts[:end]), end < len(parts) or is_folder) for end in ends)
