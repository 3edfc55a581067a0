"""Which repositories there are in a folder, and what is changed in them since their last commits or their bases."""

from __future__ import annotations

import os
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .base import base_of, changes_since
from .command import GitError, checked, look, text
from .limits import BASE, LAST_COMMIT
from .place import check, root_of, without_filters

REPOSITORIES = 20
CHANGES = 2000
_DEPTH = 3
_FOLDERS = 2000
_BYTES = 2 * 1024 * 1024
_STATUS = ["status", "--porcelain=v2", "--branch", "-z", "--no-renames", "--untracked-files=all"]
# What is changed in a submodule is told of it itself, with its own settings.
_STATUS += ["--ignore-submodules=dirty", "--", "."]
_PASSED_OVER = frozenset(("node_modules", "__pycache__", ".venv", "venv", ".tox"))


class ChangedFile(NamedTuple):
    """A file that is not as it was in the last commit: M, A, D, or U for a conflict."""

    status: str
    path: bytes
    is_untracked: bool = False


def status(directory: str, workspace: str, since: str = LAST_COMMIT) -> Dict[str, Any]:
    """The repositories in a folder, each with its branch and its changes; paths are relative to that folder.

    Changes are those since the last commit, or since the branch left its base, where it has one.

    Raises:
        GitError: git cannot be used, or there are none (``no_repository``).
    """
    places = found(directory, workspace)
    if not places:
        raise GitError("no_repository", "Not a git repository")
    inner = [os.fsencode(place) + b"/" for place in places if place]
    shown: List[Dict[str, Any]] = []
    errors: List[str] = []
    codes = set()
    for place in places:
        try:
            shown.append(_status(directory, place, workspace, inner, since))
        except GitError as error:
            if error.code == "no_git":
                raise
            codes.add(error.code)
            errors.append(f"{text(os.fsencode(place)) or '.'}: {error}")
    if not shown and codes == {"no_repository"}:
        raise GitError("no_repository", "Not a git repository")
    if not shown:
        raise GitError("failed", "; ".join(errors))
    return {"repositories": shown, "errors": errors}


def found(directory: str, workspace: str) -> List[str]:
    """The repositories at or right below a folder, as paths relative to it; "" for the folder's own."""
    places = [""] if root_of(directory, workspace) is not None else []
    waiting: List[Tuple[str, int]] = [("", 0)]
    seen = 0
    while waiting and seen < _FOLDERS and len(places) < REPOSITORIES:
        place, depth = waiting.pop(0)
        try:
            with os.scandir(os.path.join(directory, place)) as entries:
                names = sorted(one.name for one in entries if one.is_dir(follow_symlinks=False))
        except OSError:
            continue
        for name in names:
            seen += 1
            path = os.path.join(place, name)
            if name.startswith(".") or name in _PASSED_OVER:
                continue
            if os.path.lexists(os.path.join(directory, path, ".git")):
                places.append(path)
            if depth + 1 < _DEPTH:
                waiting.append((path, depth + 1))
    return places[:REPOSITORIES]


def _status(directory: str, place: str, workspace: str, inner: List[bytes], since: str) -> Dict[str, Any]:
    where = os.path.join(directory, place) if place else directory
    root = root_of(where, workspace) or where
    check(root, workspace)
    overruled = without_filters(root)
    output = look(where, _STATUS, _BYTES, root, overruled)
    fields = checked(output, "git status").split(b"\0")[: -1 if not output.is_cut else -2]
    head: Dict[bytes, bytes] = {}
    changes: Dict[bytes, str] = {}
    below = os.fsencode(os.path.relpath(where, root)) + b"/" if where != root else b""
    base = base_of(root)
    listed = [change for change in map(_change, fields) if change is not None]
    if base is not None and since == BASE:
        compared = changes_since(where, root, base, overruled)
        loose = [one for one in listed if one.is_untracked or one.status == "U"]
        listed = [*(ChangedFile(compared[path], path) for path in compared), *loose]
    for field in fields:
        if field.startswith(b"# "):
            name, _, value = field[2:].partition(b" ")
            head[name] = value
    for change in listed:
        if not change.path.startswith(below):
            continue
        path = change.path[len(below) :]
        if change.status == "A" and path.endswith(b"/"):
            continue  # an untracked repository, which is shown by itself
        path = os.fsencode(place) + b"/" + path if place else path
        if not place and any(path.startswith(one) for one in inner):
            continue
        # Removed from the index, but there: neither removed nor new.
        changes[path] = "M" if {changes.get(path), change.status} == {"D", "A"} else change.status
    branch = head.get(b"branch.head", b"")
    ahead, behind = (int(part) for part in (head.get(b"branch.ab") or b"+0 -0").split())
    return {
        "path": text(os.fsencode(place)),
        "branch": None if branch in (b"", b"(detached)") else text(branch),
        "head": None if head.get(b"branch.oid", b"(initial)") == b"(initial)" else text(head[b"branch.oid"]),
        "upstream": text(head[b"branch.upstream"]) if b"branch.upstream" in head else None,
        "ahead": ahead,
        "behind": -behind,
        "base": base._asdict() if base is not None else None,
        "changes": [{"status": changes[path], "path": text(path)} for path in sorted(changes)[:CHANGES]],
        "left_out": max(0, len(changes) - CHANGES),
        "is_cut": output.is_cut,
    }


def _change(field: bytes) -> Optional[ChangedFile]:
    """One entry of ``git status --porcelain=v2 -z``."""
    kind = field[:1]
    if kind == b"?":
        return ChangedFile("A", field[2:], is_untracked=True)
    if kind == b"u":
        return ChangedFile("U", field.split(b" ", 10)[-1])
    if kind != b"1":
        return None
    parts = field.split(b" ", 8)
    index, tree = parts[1][:1], parts[1][1:2]
    if tree == b"D":
        return ChangedFile("D", parts[-1])
    if index == b"A" or tree == b"A":
        return ChangedFile("A", parts[-1])
    return ChangedFile("D" if index == b"D" else "M", parts[-1])
