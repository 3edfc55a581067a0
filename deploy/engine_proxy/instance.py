"""Whose engine proxy this is: the one Drydock that it serves, kept in a file for all its starts."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from deploy.engine_proxy.errors import ForbiddenCallError

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class ServedInstance:
    """The instance whose things the proxy lets through: the first one that it was asked for, and never another.

    The file's folder outlives the proxy, as the server's data outlive the server. Whoever takes the server over later
    cannot make the proxy take up the things of another Drydock on the same host.

    Args:
        path: file that keeps the instance's name.

    Raises:
        ValueError: what the file has is no such name.
        OSError: the file cannot be read, or its folder is not there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.name: str | None = None
        if path.exists():
            self.name = path.read_text(encoding="ascii").strip()
            if _NAME.fullmatch(self.name) is None:
                raise ValueError(f"{path} holds no name of an instance; remove it to have one written anew")
        elif not path.parent.is_dir():
            raise FileNotFoundError(f"the folder {path.parent} is not there; it keeps whose proxy this is")

    def learn(self, name: str) -> None:
        """Serve this instance from now on, if none is served yet.

        Raises:
            RefusedError: it is no possible name, or it could not be written down.
        """
        if self.name is not None:
            return
        if _NAME.fullmatch(name) is None:
            raise ForbiddenCallError("the label drydock.instance is not the name of an instance")
        made = self._path.with_name(f"{self._path.name}.new")
        try:
            with made.open("w", encoding="ascii") as file:
                file.write(f"{name}\n")
                file.flush()
                os.fsync(file.fileno())
            made.replace(self._path)
        except OSError as error:
            raise ForbiddenCallError(f"the proxy cannot write down whom it serves: {error.strerror}") from None
        self.name = name
