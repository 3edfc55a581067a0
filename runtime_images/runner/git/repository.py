"""A repository of the workspace: where it is, what it says about itself that is not to be believed, and its base."""

from __future__ import annotations

import os
import stat
from typing import Dict, List, Mapping, NamedTuple, Optional

from .command import GitError, checked, look, text

_READ_BY_GIT = (".git/HEAD", ".git/config", ".git/index", ".git/info/exclude", ".gitignore", ".gitattributes")
_POINTER_BYTES = 8192
_CONFIG_BYTES = 256 * 1024
_USAGE = 129
_OF_THE_USER = (b"system", b"global")


def root_of(directory: str, workspace: str) -> Optional[str]:
    """The folder of the repository that a folder is in, no higher than the workspace; None when it is in none."""
    while not os.path.lexists(os.path.join(directory, ".git")):
        if directory in ("/", workspace) or not directory.startswith(workspace.rstrip("/") + "/"):
            return None
        directory = os.path.dirname(directory)
    return directory


def check(root: str, workspace: str) -> None:
    """See that what git would read of a repository is in the workspace, and can be read without waiting."""
    inside = os.path.realpath(workspace).rstrip("/") + "/"
    place = _target(os.path.join(root, ".git"), b"gitdir: ")
    common = _target(os.path.join(place, "commondir"), b"") if os.path.lexists(os.path.join(place, "commondir")) else ""
    for one in (place, common):
        if one and not os.path.realpath(one).startswith(inside):
            raise GitError("forbidden", "its .git leads out of the workspace")
    for name in _READ_BY_GIT:
        path = os.path.join(root, name)
        if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
            raise GitError("failed", f"{name} is not a file")


def without_filters(root: str, keep_of_user: bool = True) -> Dict[str, str]:
    """Settings that switch off the programs through which a repository would have its files read.

    Those of the sandbox's user (say of large files) stay, unless they are to go as well: they are for all repositories,
    and no part of this one.
    """
    asked = ["--includes", "--name-only", "-z", "--get-regexp", "^filter[.]"]
    told = look(root, ["config", "--show-scope", *asked], _CONFIG_BYTES, root)
    fields = told.data.split(b"\0")[:-1]
    if told.status == _USAGE:  # before git 2.26
        names = look(root, ["config", *asked], _CONFIG_BYTES, root).data.split(b"\0")[:-1]
        fields = [field for name in names for field in (b"local", name)]
    overruled: Dict[str, str] = {}
    for scope, name in (fields[place : place + 2] for place in range(0, len(fields), 2)):
        if keep_of_user and scope in _OF_THE_USER:
            continue
        filter_name = os.fsdecode(name).rpartition(".")[0]
        if "=" in filter_name:
            raise GitError("failed", "it has a content filter with = in its name, which cannot be switched off")
        # An empty process counts for more than clean and smudge, and is none.
        overruled.update({f"{filter_name}.process": "", f"{filter_name}.required": "false"})
    return overruled


def _target(path: str, mark: bytes) -> str:
    """Where a file points that holds nothing but the name of a folder; the path itself where it is a folder."""
    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            return path
        if not stat.S_ISREG(status.st_mode):
            raise GitError("failed", f"{os.path.basename(path)} is neither a folder nor a file")
        with open(path, "rb") as file:
            text = file.read(_POINTER_BYTES)
    except OSError as error:
        raise GitError("failed", f"{os.path.basename(path)} cannot be read: {error.strerror}") from error
    if not text.startswith(mark):
        raise GitError("failed", f"{os.path.basename(path)} names no repository")
    return os.path.join(os.path.dirname(path), os.fsdecode(text[len(mark) :].rstrip(b"\r\n")))


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
    """The remote's own branch, else main or master of the repository itself; None when there is nothing but that."""
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
    """The files below a folder that differ from the base, by paths from the root on; new ones only if git knows."""
    asked: List[str] = [*_DIFF, "--ignore-submodules=dirty", base.commit, "--", "."]
    output = look(directory, asked, _BYTES, root, overruled)
    fields = checked(output, "git diff").split(b"\0")
    return {fields[n + 1]: _LETTERS.get(text(fields[n]), "M") for n in range(0, len(fields) - 2, 2)}
