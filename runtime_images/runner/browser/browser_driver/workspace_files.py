"""Files that the browser leaves in the workspace: screenshots, long texts, recordings and downloads."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

_EXTENSION = re.compile(r"\.[A-Za-z0-9]{1,10}\Z")


class WorkspaceFiles:
    """Browser files in the workspace, in folders that keep themselves out of version control."""

    def __init__(self, workspace: str) -> None:
        self.workspace = Path(workspace)
        self._number = 0

    def save_screenshot(self, data: bytes) -> str:
        """Return its path, or "" when the disk does not take it; only the newest are kept."""
        return self._save(".browser_screenshots", data)

    def save_text(self, text: str) -> str:
        data = text.encode("utf-8", "replace")
        return self._save(".browser_output", data, f"browser_output_{hashlib.sha256(data).hexdigest()[:8]}.txt")

    def new_path(self, folder: str, extension: str) -> Path:
        """A path in one of our folders; OSError when that cannot be made."""
        place = self._folder(folder)
        while True:
            self._number += 1
            path = place / f"{self._number:04}{extension}"
            if not path.exists():
                return path

    def download_path(self, suggested: str) -> Path:
        """``file_N`` at the workspace's root, with the extension that the site suggests."""
        found = _EXTENSION.search(suggested)
        number = 1
        while True:
            path = self.workspace / f"file_{number}{found.group() if found else ''}"
            if not os.path.lexists(path):
                return path
            number += 1

    def existing(self, path: str) -> Path:
        """A model's path, relative ones from the workspace; ValueError when there is no such file or folder."""
        found = self.workspace / path
        if "\0" in path or not (found.is_file() or found.is_dir()):
            raise ValueError(f"there is no file {str(found)!r}")
        return found

    def _folder(self, name: str) -> Path:
        place = self.workspace / name
        place.mkdir(exist_ok=True)
        ignore = place / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")
        return place

    def _save(self, folder: str, data: bytes, name: str = "") -> str:
        try:
            path = self._folder(folder) / name if name else self.new_path(folder, ".jpg")
            path.write_bytes(data)
            files = [one for one in path.parent.iterdir() if one.name != ".gitignore"]
            for old in sorted(files, key=lambda one: one.stat().st_mtime)[:-200]:
                old.unlink()
        except OSError:
            return ""  # a full disk must not keep the model from seeing the page
        return str(path)
