"""Named model configurations as files, one JSON file each, in the user's home."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


HOME_VARIABLE = "DRYDOCK_HOME"
"""Names the folder in which programs and servers of this user keep what they share: stored models."""


def default_directory() -> Path:
    """``profiles`` under ``DRYDOCK_HOME``, or under ``~/.drydock``."""
    home = os.environ.get(HOME_VARIABLE, "").strip()
    return (Path(home).expanduser() if home else Path.home() / ".drydock") / "profiles"


class ProfileFiles:
    """The files of a folder; nobody but the user may read them, for they may hold keys."""

    def __init__(self, directory: str | os.PathLike[str] | None = None) -> None:
        self.directory = Path(directory).expanduser() if directory is not None else default_directory()

    def names(self) -> list[str]:
        """The names there are, sorted."""
        if not self.directory.is_dir():
            return []
        return sorted(path.stem for path in self.directory.glob("*.json") if _NAME.fullmatch(path.stem))

    def read(self, name: str) -> dict[str, Any]:
        """The fields of a profile.

        Raises:
            FileNotFoundError: there is none of that name; those there are are named.
            ValueError: the name or the file is none of a profile.
        """
        path = self._path(name)
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            known = ", ".join(self.names()) or "none"
            raise FileNotFoundError(f"there is no profile {name!r} in {self.directory}; there are: {known}") from None
        except ValueError as error:
            raise ValueError(f"profile {name!r} is not valid JSON ({error}): {path}") from None
        if not isinstance(value, dict):
            raise ValueError(f"profile {name!r} is no JSON object: {path}")
        return value

    def write(self, name: str, text: str) -> Path:
        """Store a profile whole, in place of an earlier one."""
        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = path.with_suffix(".part")
        part.unlink(missing_ok=True)
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        part.replace(path)
        return path

    def delete(self, name: str) -> None:
        """Remove a profile; one that is not there is no error."""
        self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a profile: letters, digits, dot, hyphen and underscore, up to 64")
        return self.directory / f"{name}.json"
