"""Where the tree's contents and lists are kept: a folder outside the workspace, bounded in size and number."""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from typing import Any, Dict, List, Optional, Set

NAMES_LIMIT = 500
STORE_LIMIT = 512 * 1024 * 1024

Lists = Dict[str, List[Any]]


class TreeStore:
    """Contents by digest, lists by digest, and names for lists, oldest first; the oldest go when there are too many."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._names: Optional[Dict[str, str]] = None
        self._newest = ""
        self._size = -1
        self._folders: Set[str] = set()

    def has(self, name: str) -> bool:
        """Whether something is kept under this name."""
        return name in self._loaded()

    def keep(self, name: str, entries: Lists) -> None:
        """Keep a list of files under a name; one that had it before is forgotten."""
        plain = json.dumps(entries, sort_keys=True, separators=(",", ":")).encode()
        digest = hashlib.blake2b(plain, digest_size=20).hexdigest()
        place = self._place("lists", digest)
        if not os.path.exists(place):
            self._write(place, zlib.compress(plain, 1))
        self._newest = digest
        self.keep_same(name)

    def keep_same(self, name: str) -> None:
        """Keep the list that was kept last, by this object, under another name too."""
        names = self._loaded()
        names.pop(name, None)
        names[name] = self._newest
        self._append(name, self._newest)
        if len(names) > NAMES_LIMIT or self._bytes() > STORE_LIMIT:
            self._forget_oldest()

    def entries(self, name: str) -> Lists:
        """The list of files of this name.

        Raises:
            KeyError: there is none.
        """
        with open(self._place("lists", self._loaded()[name]), "rb") as file:
            found: Lists = json.loads(zlib.decompress(file.read()))
        return found

    def put(self, digest: str, data: bytes) -> None:
        """Keep a content."""
        place = self._place("objects", digest)
        if not os.path.exists(place):
            self._write(place, data)

    def object(self, digest: str) -> str:
        """Where a content is."""
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

    def _loaded(self) -> Dict[str, str]:
        if self._names is None:
            try:
                with open(os.path.join(self._folder, "names"), encoding="utf-8") as file:
                    pairs = [line.rstrip("\n").rpartition(" ") for line in file if line.endswith("\n")]
            except FileNotFoundError:
                pairs = []
            self._names = {name: digest for name, _, digest in pairs if os.path.exists(self._place("lists", digest))}
        return self._names

    def _append(self, name: str, digest: str) -> None:
        with open(os.path.join(self._folder, "names"), "a", encoding="utf-8") as file:
            file.write(f"{name} {digest}\n")

    def _bytes(self) -> int:
        if self._size < 0:
            self._size = sum(os.path.getsize(place) for place in self._all())
        return self._size

    def _all(self) -> List[str]:
        return [os.path.join(folder, name) for folder, _, names in os.walk(self._folder) for name in names]

    def _forget_oldest(self) -> None:
        names = self._loaded()
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
        fresh = os.path.join(self._folder, "names.new")
        with open(fresh, "w", encoding="utf-8") as file:
            file.writelines(f"{name} {digest}\n" for name, digest in names.items())
        os.replace(fresh, os.path.join(self._folder, "names"))
