"""One server for each data folder, and the folder's own lasting name."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from pathlib import Path
from types import TracebackType
from typing import Self

from server.db.errors import DataDirectoryError, InstanceRunningError

LOCK_FILE = "instance.lock"
ID_FILE = "instance-id"


def instance_id(data_dir: Path) -> str:
    """The random name of this data folder, made once; labels the containers that belong to it."""
    path = data_dir / ID_FILE
    try:
        found = _read_id(path)
        if found is None:
            temporary = path.with_name(f".{ID_FILE}.{secrets.token_hex(8)}")
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(secrets.token_hex(8) + "\n")
            # Of two processes that do this at once, the first one's name stands.
            try:
                os.link(temporary, path)
            except FileExistsError:
                pass
            finally:
                temporary.unlink()
            found = _read_id(path)
    except OSError as error:
        raise DataDirectoryError(f"the file {path} cannot be used ({error.strerror or error})") from error
    if found is None:
        raise DataDirectoryError(f"the file {path} holds no instance id; remove it to get a new one")
    return found


def _read_id(path: Path) -> str | None:
    try:
        text = path.read_text("ascii", errors="replace").strip()
    except FileNotFoundError:
        return None
    if not re.fullmatch(r"[0-9a-f]{16}", text):
        raise DataDirectoryError(f"the file {path} holds no instance id; remove it to get a new one")
    return text


class InstanceLock:
    """Held by the server that uses a data folder; the operating system takes it back when the process ends, however."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / LOCK_FILE
        self._descriptor: int | None = None

    def __enter__(self) -> Self:
        """Take the lock.

        Raises:
            InstanceRunningError: another server holds it.
            DataDirectoryError: the file cannot be made.
        """
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise DataDirectoryError(f"the file {self._path} cannot be made ({error.strerror or error})") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            if not isinstance(error, BlockingIOError):
                raise DataDirectoryError(
                    f"the file {self._path} cannot be locked ({error.strerror or error}); "
                    "choose a data folder on a local disk"
                ) from error
            who = f" (process {holder})" if holder.isdigit() else ""
            raise InstanceRunningError(
                f"another Drydock server{who} is using the data folder {self._path.parent}; "
                "stop it, or choose another folder with --data-dir"
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
        self._descriptor = descriptor
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
