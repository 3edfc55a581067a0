"""Snapshots of the workspace's files: every content once, and a list of files for each moment.

Nothing in the workspace is touched to take one. Neither kept nor restored nor removed are folders named in
`LEFT_ALONE`, files over a limit, and what is no file. Everything may raise `OSError`, and `KeyError` for an unknown
name.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
import tarfile
import time
import zlib
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from .disk import FileError

_REPOSITORIES = (".git", ".hg", ".svn")
_REBUILT = ("node_modules", "__pycache__", ".venv", "venv", ".tox", ".nox", ".mypy_cache", ".pytest_cache")
LEFT_ALONE = frozenset((*_REPOSITORIES, *_REBUILT, ".ruff_cache", ".gradle", ".terraform"))
"""Folders of version control, or that a tool makes again."""

FILE_LIMIT = 32 * 1024 * 1024
ENTRIES_LIMIT = 20_000
BYTES_LIMIT = 256 * 1024 * 1024
NAMES_LIMIT = 500
STORE_LIMIT = 512 * 1024 * 1024
_RACY = 50_000_000
"""Nanoseconds: a file changed so shortly before it was read may have changed again unnoticed."""


class SnapshotEntry(NamedTuple):
    """A file (kind f), folder (d), link (l), or what is left alone (x); value is a digest or a link's target."""

    kind: str
    mode: int
    value: str
    stamp: Tuple[int, ...] = ()

    @property
    def same(self) -> Tuple[str, int, str]:
        return self.kind, self.mode, self.value


Entries = Dict[str, SnapshotEntry]
Lists = Dict[str, List[Any]]


class Tree:
    """Takes and restores snapshots of the workspace. One call at a time, in any thread."""

    def __init__(self, workspace: str, store: TreeStore) -> None:
        self._workspace = workspace
        self._store = store
        self._known: Entries = {}
        self._looked_at = 0
        self._is_newest = False

    def take(self, name: str, stop: Callable[[], bool] = lambda: False) -> Entries:
        """Keep the files under a name; raises `RequestError` for too many, or if ``stop`` said so."""
        start = time.time_ns()
        entries: Entries = {}
        size = 0
        for path, found in self._walk():
            if stop():
                raise FileError("cancelled", "it took too long")
            entry = self._entry(path, found) or SnapshotEntry("x", 0, "")
            entries[path] = entry
            size += found.stat(follow_symlinks=False).st_size if entry.kind == "f" else 0
            if len(entries) > ENTRIES_LIMIT or size > BYTES_LIMIT:
                raise FileError(
                    "too_large",
                    f"the workspace has more than {ENTRIES_LIMIT} files or {BYTES_LIMIT // 2**20} MiB"
                    f" (without {', '.join(sorted(LEFT_ALONE)[:4])} and the like)",
                )
        self._store.keep(name, {path: list(entry.same) for path, entry in entries.items()})
        self._known, self._looked_at, self._is_newest = entries, start, True
        return entries

    def take_unchanged(self, name: str, limit: int) -> bool:
        """Keep the files under this name too if a glance shows no change since they were last kept.

        Returns False, having done nothing, where one changed, where that cannot be told without reading, and over
        ``limit`` files.
        """
        if not self._is_newest or len(self._known) > limit:
            return False
        count = 0
        for path, found in self._walk():
            count += 1
            known = self._known.get(path)
            entry = self._entry(path, found, reads=False)
            if known is None or count > limit or entry is None or entry.same != known.same:
                return False
        if count != len(self._known):
            return False
        self._store.keep_same(name)
        return True

    def last_taken(self, names: List[str]) -> Optional[str]:
        """Which of these names was taken last: one whose operation ended late may have a lower number than others."""
        return self._store.last_kept(set(names))

    def forget(self, is_lost: Callable[[str], bool]) -> None:
        """Forget those of these names; their contents go with the oldest."""
        self._store.forget(is_lost)

    def restore(self, name: str, present: Entries) -> Tuple[int, int]:
        """Restore this name's files (``present``: what ``take`` just returned); returns counts written and removed."""
        target = {path: SnapshotEntry(*parts) for path, parts in self._store.entries(name).items()}
        removed = 0
        for path in sorted(present, reverse=True):  # what is in a folder before the folder
            before, then = present[path], target.get(path)
            if before.kind == "x" or (then is not None and then.kind in ("x", before.kind)):
                continue
            removed += self._remove(path, before)
        written = 0
        for path in sorted(target):
            then, now = target[path], present.get(path)
            if then.kind == "x" or (now is not None and (now.kind == "x" or now.same == then.same)):
                continue
            self._write(path, then)
            written += 1
        self._known, self._is_newest = {}, False
        return written, removed

    def _walk(self) -> Iterator[Tuple[str, os.DirEntry[str]]]:
        folders: List[str] = [""]
        while folders:
            folder = folders.pop()
            try:
                found = list(os.scandir(os.path.join(self._workspace, folder)))
            except OSError:
                continue  # not ours to read
            for one in found:
                path = os.path.join(folder, one.name)
                if one.name in LEFT_ALONE:
                    continue
                yield path, one
                if one.is_dir(follow_symlinks=False):
                    folders.append(path)

    def _entry(self, path: str, found: os.DirEntry[str], *, reads: bool = True) -> Optional[SnapshotEntry]:
        """None where it cannot be told, or only by a reading that is not allowed."""
        try:
            facts = found.stat(follow_symlinks=False)
            mode = stat.S_IMODE(facts.st_mode)
            if stat.S_ISDIR(facts.st_mode):
                return SnapshotEntry("d", mode, "")
            if stat.S_ISLNK(facts.st_mode):
                return SnapshotEntry("l", 0, os.readlink(found.path))
            if not stat.S_ISREG(facts.st_mode) or facts.st_size > FILE_LIMIT:
                return SnapshotEntry("x", 0, "")
            stamp = facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino
            known = self._known.get(path)
            if known is not None and known.stamp == stamp and max(stamp[1:3]) < self._looked_at - _RACY:
                return SnapshotEntry("f", mode, known.value, stamp)
            if not reads:
                return None
            with open(found.path, "rb") as file:
                data = file.read(FILE_LIMIT + 1)
            digest = hashlib.blake2b(data, digest_size=20).hexdigest()
        except (PermissionError, FileNotFoundError):
            return None
        self._store.put(digest, data)
        return SnapshotEntry("f", mode, digest, stamp)

    def _remove(self, path: str, entry: SnapshotEntry) -> int:
        place = os.path.join(self._workspace, path)
        try:
            if entry.kind == "d":
                inside = os.listdir(place)
                # Caches in a folder that there was not then are no reason to keep it; a repository is one.
                if all(name in LEFT_ALONE and name not in _REPOSITORIES for name in inside):
                    for name in inside:
                        shutil.rmtree(os.path.join(place, name), ignore_errors=True)
                os.rmdir(place)
            else:
                os.unlink(place)
        except OSError:
            return 0  # a folder that holds what is left alone, or gone already
        return 1

    def _write(self, path: str, entry: SnapshotEntry) -> None:
        place = os.path.join(self._workspace, path)
        if entry.kind == "d":
            os.makedirs(place, exist_ok=True)
            os.chmod(place, entry.mode | 0o700)
            return
        fresh = f"{place}.drydock-{os.getpid()}"
        if entry.kind == "l":
            os.symlink(entry.value, fresh)
            os.replace(fresh, place)
            return
        try:
            with open(self._store.object(entry.value), "rb") as source, open(fresh, "wb") as file:
                file.write(source.read())
            os.chmod(fresh, entry.mode)
            os.replace(fresh, place)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(fresh)
            raise

    def pack(self, name: str, target: str) -> None:
        """Write a tar file with the files of a name and the present folders of version control."""
        with tarfile.open(target, "w") as archive:
            for path, parts in sorted(self._store.entries(name).items()):
                entry = SnapshotEntry(*parts)
                about = tarfile.TarInfo(path)
                about.mode = entry.mode
                if entry.kind in ("d", "l"):
                    about.type = tarfile.DIRTYPE if entry.kind == "d" else tarfile.SYMTYPE
                    about.linkname = entry.value  # empty for a folder
                    archive.addfile(about)
                elif entry.kind == "f":
                    place = self._store.object(entry.value)
                    about.size = os.path.getsize(place)
                    with open(place, "rb") as file:
                        archive.addfile(about, file)
            for folder, folders, _files in os.walk(self._workspace):
                for one in [one for one in folders if one in LEFT_ALONE]:
                    folders.remove(one)
                    if one in _REPOSITORIES:
                        place = os.path.join(folder, one)
                        archive.add(place, os.path.relpath(place, self._workspace))

    def unpack(self, source: str) -> int:
        """Put the files of a tar file into the workspace; may be repeated after one that was broken off."""
        count = 0
        folders: List[Tuple[str, int, float]] = []
        with tarfile.open(source) as archive:
            # Newer Pythons would change modes and refuse links by themselves.
            archive.extraction_filter = lambda about, _folder: about
            for about in archive:
                if not self._stays_inside(about):
                    continue
                place = os.path.join(self._workspace, about.name)
                about.uid, about.gid = os.getuid(), os.getgid()
                if about.isdir():
                    # Its own mode comes last: it may be one that lets nothing in.
                    folders.append((place, about.mode, about.mtime))
                    about.mode |= 0o700
                if os.path.islink(place) or (not about.isdir() and os.path.lexists(place)):
                    os.unlink(place)  # what is there may be for reading only
                archive.extract(about, self._workspace, set_attrs=not about.issym())
                count += 1
        for place, mode, changed_at in reversed(folders):
            os.utime(place, (changed_at, changed_at))
            os.chmod(place, mode)
        return count

    def _stays_inside(self, about: tarfile.TarInfo) -> bool:
        """Whether workspaces have such things, and neither it nor what it is linked to is reached by a link."""
        top = os.path.realpath(self._workspace)
        for path in (about.name, about.linkname) if about.islnk() else (about.name,):
            parts = path.split("/")
            above = os.path.join(top, *parts[:-1])
            if path.startswith("/") or ".." in parts or os.path.realpath(above) != os.path.normpath(above):
                return False
        return about.isreg() or about.isdir() or about.issym() or about.islnk()


class TreeStore:
    """A folder outside the workspace with contents, lists of files and names; over its limit, the oldest go."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._newest = ""
        self._size = -1
        self._folders: Set[str] = set()
        try:
            with open(os.path.join(folder, "names"), encoding="utf-8") as file:
                pairs = [line.rstrip("\n").rpartition(" ") for line in file if line.endswith("\n")]
        except FileNotFoundError:
            pairs = []
        self._names: Dict[str, str] = {}  # in the order in which they were kept last
        for name, _, digest in pairs:
            self._names.pop(name, None)
            if os.path.exists(self._place("lists", digest)):
                self._names[name] = digest

    def last_kept(self, names: Set[str]) -> Optional[str]:
        return next((name for name in reversed(list(self._names)) if name in names), None)

    def keep(self, name: str, entries: Lists) -> None:
        plain = json.dumps(entries, sort_keys=True, separators=(",", ":")).encode()
        digest = hashlib.blake2b(plain, digest_size=20).hexdigest()
        place = self._place("lists", digest)
        if not os.path.exists(place):
            self._write(place, zlib.compress(plain, 1))
        self._newest = digest
        self.keep_same(name)

    def keep_same(self, name: str) -> None:
        """Keep the list last kept by this object under another name too."""
        self._names.pop(name, None)
        self._names[name] = self._newest
        with open(os.path.join(self._folder, "names"), "a", encoding="utf-8") as file:
            file.write(f"{name} {self._newest}\n")
        if len(self._names) > NAMES_LIMIT or self._bytes() > STORE_LIMIT:
            self._forget_oldest()

    def forget(self, is_lost: Callable[[str], bool]) -> None:
        kept = {name: digest for name, digest in self._names.items() if not is_lost(name)}
        if len(kept) < len(self._names):
            self._names = kept
            self._write_names()

    def entries(self, name: str) -> Lists:
        with open(self._place("lists", self._names[name]), "rb") as file:
            found: Lists = json.loads(zlib.decompress(file.read()))
        return found

    def put(self, digest: str, data: bytes) -> None:
        place = self._place("objects", digest)
        if not os.path.exists(place):
            self._write(place, data)

    def object(self, digest: str) -> str:
        return self._place("objects", digest)

    def _place(self, kind: str, digest: str) -> str:
        return os.path.join(self._folder, kind, digest[:2], digest[2:])

    def _write(self, place: str, data: bytes) -> None:
        fresh = f"{place}.new"
        folder = os.path.dirname(place)
        if folder not in self._folders:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            self._folders.add(folder)
        with open(fresh, "wb") as file:
            file.write(data)
        os.replace(fresh, place)
        if self._size >= 0:
            self._size += len(data)

    def _bytes(self) -> int:
        if self._size < 0:
            self._size = sum(os.path.getsize(place) for place in self._all())
        return self._size

    def _all(self) -> List[str]:
        return [os.path.join(folder, name) for folder, _, names in os.walk(self._folder) for name in names]

    def _forget_oldest(self) -> None:
        names = self._names
        while len(names) > 1 and (len(names) > NAMES_LIMIT or self._bytes() > STORE_LIMIT):
            for name in list(names)[: max(1, len(names) // 4)]:
                del names[name]
            used: Set[str] = {os.path.join(self._folder, "names")}
            for name, digest in names.items():
                used.add(self._place("lists", digest))
                used.update(self.object(entry[2]) for entry in self.entries(name).values() if entry[0] == "f")
            for place in self._all():
                if place not in used:
                    os.unlink(place)
            self._size = -1
        self._write_names()

    def _write_names(self) -> None:
        fresh = os.path.join(self._folder, "names.new")
        with open(fresh, "w", encoding="utf-8") as file:
            file.writelines(f"{name} {digest}\n" for name, digest in self._names.items())
        os.replace(fresh, os.path.join(self._folder, "names"))
