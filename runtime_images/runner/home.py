"""A home that can be written, with what is in the image's own, which cannot."""

from __future__ import annotations

import os

OLD_HOME = "DRYDOCK_OLD_HOME"
"""Variable with the home that the image has for the user, where another one is taken in its place."""
_DEPTH = 4
_ENTRIES = 2000
_COPIED_BYTES = 64 * 1024


def furnish(old: str, new: str) -> None:
    """Make the files of the old home be found in the new one; what is there already stays.

    Small files right in it, which are settings, are copied, so that they can be changed. The upper folders are made
    anew, so that something can be added to them; all else is linked to. What cannot be had is left out.
    """
    _Furnishing().folder(old, new, 1)


class _Furnishing:
    def __init__(self) -> None:
        self._left = _ENTRIES

    def folder(self, old: str, new: str, depth: int) -> None:
        try:
            with os.scandir(old) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            return
        for entry in found:
            self._left -= 1
            target = os.path.join(new, entry.name)
            try:
                self._entry(entry, target, depth)
            except OSError:
                continue  # it is there already, or may not be read

    def _entry(self, entry: "os.DirEntry[str]", target: str, depth: int) -> None:
        if entry.is_dir(follow_symlinks=False) and depth <= _DEPTH and self._left > 0:
            os.mkdir(target, entry.stat(follow_symlinks=False).st_mode & 0o777 | 0o700)
            self.folder(entry.path, target, depth + 1)
        elif (
            depth == 1
            and entry.is_file(follow_symlinks=False)
            and entry.stat(follow_symlinks=False).st_size <= _COPIED_BYTES
        ):
            with open(entry.path, "rb") as settings, open(target, "xb") as copy:
                copy.write(settings.read(_COPIED_BYTES))
            os.chmod(target, entry.stat().st_mode & 0o777 | 0o600)
        else:
            os.symlink(entry.path, target)
