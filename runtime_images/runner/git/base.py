"""The branch that the current one was begun from, and what is changed since then, committed or not."""

from __future__ import annotations

from typing import Dict, List, Mapping, NamedTuple, Optional

from .command import checked, look, text

_REMOTES = tuple(f"refs/remotes/origin/{name}" for name in ("HEAD", "main", "master"))
_BRANCHES = (*_REMOTES, "refs/heads/main", "refs/heads/master")
_BYTES = 2 * 1024 * 1024
_DIFF = ["diff", "--no-ext-diff", "--no-textconv", "--no-renames", "--no-color", "--name-status", "-z"]
_LETTERS = {"A": "A", "D": "D", "U": "U"}


class MergeBase(NamedTuple):
    """A branch by its name, and the last commit that it and the current one have in common."""

    name: str
    commit: str


def base_of(root: str) -> Optional[MergeBase]:
    """The remote's own branch, else main or master of the repository itself; None when there is nothing but that.

    Raises:
        GitError: git cannot be used.
    """
    listed = look(root, ["for-each-ref", "--format=%(refname)%00%(symref)%00%(HEAD)%00", *_BRANCHES], _BYTES, root)
    fields = [text(field).lstrip("\n") for field in listed.data.split(b"\0")]
    found = {fields[n]: fields[n + 1] or fields[n] for n in range(0, len(fields) - 3, 3) if fields[n + 2] != "*"}
    name = next((found[branch] for branch in _BRANCHES if branch in found), None)
    if name is None:
        return None
    common = look(root, ["merge-base", "HEAD", name], 200, root)
    if common.status != 0:
        return None
    return MergeBase(name.split("/", 2)[2], text(common.data).strip())


def changes_since(directory: str, root: str, base: MergeBase, overruled: Mapping[str, str]) -> Dict[bytes, str]:
    """The files below a folder that differ from the base, by their paths from the root on; new ones only if git knows.

    Raises:
        GitError: git failed.
    """
    asked: List[str] = [*_DIFF, "--ignore-submodules=dirty", base.commit, "--", "."]
    output = look(directory, asked, _BYTES, root, overruled)
    fields = checked(output, "git diff").split(b"\0")
    return {fields[n + 1]: _LETTERS.get(text(fields[n]), "M") for n in range(0, len(fields) - 2, 2)}
