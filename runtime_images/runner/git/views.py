"""Views of repositories: their changes, one file before and after, and the commits; else `GitError`."""

from __future__ import annotations

import os
import stat
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from ..files.confined_folder import ConfinedFolder
from ..files.disk import FileError, failure
from . import BASE, FILE_LIMIT, LAST_COMMIT
from .command import GitError, Output, checked, look, text

REPOSITORIES = 20
CHANGES = 2000
_FOLDERS = 2000
_BYTES = 2 * 1024 * 1024
_STATUS = ["status", "--porcelain=v2", "--branch", "-z", "--no-renames", "--untracked-files=all"]
# What is changed in a submodule is told of it itself, with its own settings.
_STATUS += ["--ignore-submodules=dirty", "--", "."]
_LOG_BYTES = 2 * 1024 * 1024
_FIELDS = ("hash", "parents", "author", "email", "date", "refs", "subject", "body")
_FORMAT = "%x00".join(("%H", "%P", "%an", "%ae", "%aI", "%D", "%s", "%b")) + "%x00"
_NO_COMMIT = 1
_NAMES_BYTES = 16 * 1024 * 1024
_WIDE_END = b"\r\n"
_READ_BY_GIT = (".git/HEAD", ".git/config", ".git/index", ".git/info/exclude", ".gitignore", ".gitattributes")
_CONFIG_BYTES = 256 * 1024
_REMOTES = tuple(f"refs/remotes/origin/{name}" for name in ("HEAD", "main", "master"))
_BRANCHES = (*_REMOTES, "refs/heads/main", "refs/heads/master")
_DIFF = ["diff", "--no-ext-diff", "--no-textconv", "--no-renames", "--no-color", "--name-status", "-z"]
_PASSED_OVER = frozenset(("node_modules", "__pycache__", ".venv", "venv", ".tox"))


class ChangedFile(NamedTuple):
    """A file changed since the last commit: M, A, D, or U for a conflict."""

    status: str
    path: bytes
    is_untracked: bool = False


def status(directory: str, workspace: str, since: str = LAST_COMMIT) -> Dict[str, Any]:
    """The repositories in a folder, each with its branch and its changes; paths are relative to that folder.

    Changes are since the last commit, or since the branch left its base, where it has one.
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
    """The repositories at or right below a folder, as relative paths; "" for the folder's own."""
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
            if depth + 1 < 3:
                waiting.append((path, depth + 1))
    return places[:REPOSITORIES]


def _status(directory: str, place: str, workspace: str, inner: List[bytes], since: str) -> Dict[str, Any]:
    where = os.path.join(directory, place) if place else directory
    root = _checked_root(root_of(where, workspace) or where, workspace)
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


def diff(directory: str, path: str, workspace: str, since: str = LAST_COMMIT) -> Dict[str, Any]:
    """A file as in the last commit (or where its branch began), and as it is; empty where it is none."""
    beneath = ConfinedFolder(workspace)
    parts = beneath.parts(os.path.join(directory, path) if not path.startswith("/") else path)
    whole = os.path.join(workspace, *parts)
    root = _checked_root(root_of(os.path.dirname(whole), workspace) if parts else None, workspace)
    base = base_of(root) if since == BASE else None
    commit = base.commit if base is not None else "HEAD"
    inside = os.path.relpath(whole, root)
    if "\ufffd" in inside:  # the one name that is shown so
        lists = (["ls-tree", "-r", "-z", "--name-only", commit], ["ls-files", "-z", "--others", "--exclude-standard"])
        names = {name for one in lists for name in look(root, one, _NAMES_BYTES, root).data.split(b"\0")}
        alike = [name for name in names if text(name) == inside]
        inside = os.fsdecode(alike[0]) if len(alike) == 1 else inside
    original = _committed(root, inside, path, commit)
    modified = _present(beneath, os.path.join(root, inside), path)
    if original is None and modified is None:
        raise GitError("not_found", f"{path} is neither in the last commit nor in the workspace")
    if original and modified and _WIDE_END in modified and _WIDE_END not in original:
        # As git checks it out: line ends that it gives a file are no change of it.
        overruled = without_filters(root, keep_of_user=False)
        args = ["cat-file", "--filters", f"{commit}:{inside}"]
        original = _content(look(root, args, FILE_LIMIT, root, overruled), path)
    for data in (original, modified):
        if data is not None and b"\0" in data[:8000]:
            raise GitError("binary", f"{path} is binary")
    return {"original": text(original or b""), "modified": text(modified or b"")}


def log(directory: str, path: str, limit: int, skip: int, workspace: str, start: str = "") -> Dict[str, Any]:
    """The newest commits of a folder's repository, or of a file or folder in it (``path``).

    ``start`` is the commit that they lead to, "" the present one, and is returned: the same ``start`` with a greater
    ``skip`` goes on exactly where a page has ended.
    """
    ConfinedFolder(workspace).parts(os.path.join(directory, path))
    root = _checked_root(root_of(directory, workspace), workspace)
    start = start or _head(root)
    if not start:
        return {"commits": [], "has_more": False, "start": ""}
    args = ["log", f"--max-count={limit + 1}", f"--skip={skip}", "--no-color", "--encoding=UTF-8", "--no-mailmap"]
    output = look(directory, [*args, f"--format=tformat:{_FORMAT}", start, "--", path or "."], _LOG_BYTES, root)
    fields = [text(field.lstrip(b"\n")) for field in checked(output, "git log").split(b"\0")]
    commits: List[Dict[str, Any]] = []
    for place in range(0, len(fields) - len(_FIELDS), len(_FIELDS)):
        commit: Dict[str, Any] = dict(zip(_FIELDS, fields[place : place + len(_FIELDS)]))  # noqa: B905 - Python 3.8 has no strict
        commit["parents"] = commit["parents"].split()
        commit["refs"] = [ref.strip() for ref in commit["refs"].split(",") if ref.strip()]
        commit["body"] = commit["body"].strip()[:2000]
        commits.append(commit)
    return {"commits": commits[:limit], "has_more": len(commits) > limit or output.is_cut, "start": start}


def _head(root: str) -> str:
    """The present commit; "" where there is none yet, or git cannot use the repository."""
    found = look(root, ["rev-parse", "--verify", "--quiet", "HEAD"], 100, root)
    return "" if found.status == _NO_COMMIT else text(checked(found, "git rev-parse")).strip()


def _committed(root: str, path: str, shown: str, commit: str) -> Optional[bytes]:
    listed = look(root, ["ls-tree", "-z", commit, "--", path], 4096 + len(path) * 4, root)
    if listed.status != 0:
        if _head(root):
            checked(listed, "git ls-tree")
        return None
    entry = listed.data.partition(b"\t")[0].split()
    if len(entry) != 3 or entry[1] == b"tree":
        return None
    if entry[1] == b"commit":
        return b"Subproject commit " + entry[2] + b"\n"
    return _content(look(root, ["cat-file", "blob", entry[2].decode("ascii")], FILE_LIMIT, root), shown)


def _content(output: Output, shown: str) -> bytes:
    if output.is_cut:
        raise GitError("too_large", f"{shown} was larger than the {FILE_LIMIT // 2**20} MiB that are shown")
    return checked(output, "git cat-file")


def _present(beneath: ConfinedFolder, path: str, shown: str) -> Optional[bytes]:
    try:
        place = beneath.place(path)
        try:
            if place.missing:
                return None
            status = os.stat(place.name, dir_fd=place.folder, follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                return os.fsencode(os.readlink(place.name, dir_fd=place.folder))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise failure(error, path) from error
        finally:
            os.close(place.folder)
        opened = beneath.open(path)
    except FileError as error:
        if error.code == "not_found":
            return None
        raise
    if opened.is_folder:
        os.close(opened.descriptor)
        if not os.path.lexists(os.path.join(path, ".git")):
            raise GitError("not_a_file", f"{shown} is a folder")
        head = look(path, ["rev-parse", "--verify", "HEAD"], 100, path)
        return b"Subproject commit " + (head.data.strip() if head.status == 0 else b"(none)") + b"\n"
    with open(opened.descriptor, "rb") as file:
        data = file.read(FILE_LIMIT + 1)
    if len(data) > FILE_LIMIT:
        raise GitError("too_large", f"{shown} is larger than the {FILE_LIMIT // 2**20} MiB that are shown")
    return data


# A repository: where it is, what it says about itself that is not to be believed, and its base


def root_of(directory: str, workspace: str) -> Optional[str]:
    """The root of a folder's repository, no higher than the workspace; None when it is in none."""
    while not os.path.lexists(os.path.join(directory, ".git")):
        if directory in ("/", workspace) or not directory.startswith(workspace.rstrip("/") + "/"):
            return None
        directory = os.path.dirname(directory)
    return directory


def _checked_root(root: Optional[str], workspace: str) -> str:
    """See that all git would read of a repository is in the workspace and readable without waiting."""
    if root is None:
        raise GitError("no_repository", "Not a git repository")
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
    return root


def without_filters(root: str, keep_of_user: bool = True) -> Dict[str, str]:
    """Settings that switch off a repository's own programs for reading its files.

    The sandbox user's (say for large files), which no repository chooses, stay unless they are to go as well.
    """
    args = ["--includes", "--name-only", "-z", "--get-regexp", "^filter[.]"]
    output = look(root, ["config", "--show-scope", *args], _CONFIG_BYTES, root)
    fields = output.data.split(b"\0")[:-1]
    if output.status == 129:  # wrong usage: before git 2.26
        names = look(root, ["config", *args], _CONFIG_BYTES, root).data.split(b"\0")[:-1]
        fields = [field for name in names for field in (b"local", name)]
    overruled: Dict[str, str] = {}
    for scope, name in (fields[place : place + 2] for place in range(0, len(fields), 2)):
        if keep_of_user and scope in (b"system", b"global"):
            continue
        filter_name = os.fsdecode(name).rpartition(".")[0]
        if "=" in filter_name:
            raise GitError("failed", "it has a content filter with = in its name, which cannot be switched off")
        # An empty process counts for more than clean and smudge, and is none.
        overruled.update({f"{filter_name}.process": "", f"{filter_name}.required": "false"})
    return overruled


def _target(path: str, mark: bytes) -> str:
    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            return path
        if not stat.S_ISREG(status.st_mode):
            raise GitError("failed", f"{os.path.basename(path)} is neither a folder nor a file")
        with open(path, "rb") as file:
            text = file.read(8192)
    except OSError as error:
        raise GitError("failed", f"{os.path.basename(path)} cannot be read: {error.strerror}") from error
    if not text.startswith(mark):
        raise GitError("failed", f"{os.path.basename(path)} names no repository")
    return os.path.join(os.path.dirname(path), os.fsdecode(text[len(mark) :].rstrip(b"\r\n")))


class MergeBase(NamedTuple):
    """A branch by its name, and the last commit that it and the current one have in common."""

    name: str
    commit: str


def base_of(root: str) -> Optional[MergeBase]:
    """The remote's own branch, else the repository's main or master; None when there is no other."""
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
    """The files below a folder that differ from the base, by paths from the root; new ones only if git knows them."""
    args: List[str] = [*_DIFF, "--ignore-submodules=dirty", base.commit, "--", "."]
    output = look(directory, args, _BYTES, root, overruled)
    fields = checked(output, "git diff").split(b"\0")
    return {
        fields[n + 1]: text(fields[n]) if fields[n] in (b"A", b"D", b"U") else "M" for n in range(0, len(fields) - 2, 2)
    }
