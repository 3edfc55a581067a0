"""The data folder: made for this user alone, with a lasting name of its own, and locked by the server that uses it."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self

from server.db.blobs import sync_folder
from server.db.errors import DataDirectoryError, InstanceRunningError

SANDBOXES = "sandboxes"
"""The one folder in it that other users enter."""

SEED_FOLDER = "forks"
"""Files that wait for the first start of their conversation: a tar file for each."""

LAST_BACKUP = "last-backup.json"
"""When the last backup was made: ``made_at``, ``file`` and ``bytes``."""

RESTORING, RESTORED, REPLACED = "restoring-", "restored-", "replaced-"
"""Names of folders in a data folder begin so: what takes the place of everything, and what that was before."""

UNPACKING = ".unpacking-"
"""The folder in it begins so into which a backup is unpacked; without its maker, who has the lock, it is of no use."""

_FOLDER, _FILE = 0o700, 0o600

_log = logging.getLogger(__name__)


def prepare_data_dir(data_dir: Path) -> Path:
    """Make the folder, writable by this user alone; returns its absolute path. Links in it are left alone.

    Rights of others are taken away, and logged. Raises `DataDirectoryError` where it cannot be used or is somebody
    else's.
    """
    data_dir = data_dir.absolute()
    probe = data_dir / f".probe-{secrets.token_hex(8)}"
    try:
        data_dir.mkdir(mode=_FOLDER, parents=True, exist_ok=True)
        probe.touch(mode=_FILE)
        probe.unlink()
        _tighten(data_dir)
    except OSError as error:
        raise DataDirectoryError(
            f"the data folder {data_dir} cannot be written ({error.strerror or error}); "
            "give this user write access to it, or choose another one with --data-dir"
        ) from error
    return data_dir


def last_backup(data_dir: Path) -> float:
    """When the last backup of this folder was made, in seconds since 1970; 0: never, as far as it is known."""
    try:
        return (data_dir / LAST_BACKUP).stat().st_mtime
    except OSError:
        return 0.0


def _tighten(data_dir: Path) -> None:
    """First the folder itself: from then on nobody else can reach, or exchange, what is in it."""
    found = data_dir.stat()
    if _is_foreign(found) and os.geteuid() != 0:
        raise DataDirectoryError(
            f"the data folder {data_dir} belongs to another user (uid {found.st_uid}), who can read what is in it; "
            f"give it to this one (chown -R {os.geteuid()} {data_dir}), or choose another one with --data-dir"
        )
    closed: list[str] = []
    open_still: list[str] = []
    strange: list[str] = []
    for path, status in [(data_dir, found), *_below(data_dir)]:
        if _is_foreign(status):
            strange.append(f"{path} (uid {status.st_uid})")
        elif not stat.S_ISLNK(status.st_mode) and stat.S_IMODE(status.st_mode) & 0o077:
            rights = stat.S_IMODE(status.st_mode)
            (closed if _take_rights(path, rights) else open_still).append(f"{path} (mode {rights:o})")
    if closed:
        _log.warning("others could reach into the data folder, and cannot any more: %s", _some(closed))
    if open_still:
        _log.warning("others can reach into the data folder, and their rights cannot be changed: %s", _some(open_still))
    if strange:
        _log.warning(
            "what is another user's in the data folder can be read and changed by that user, give it to this one "
            "(chown): %s",
            _some(strange),
        )


def _below(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # it has gone meanwhile
                continue
            yield Path(entry.path), status
            if stat.S_ISDIR(status.st_mode) and entry.name != SANDBOXES and not _is_foreign(status):
                yield from _below(Path(entry.path))


def _take_rights(path: Path, mode: int) -> bool:
    try:
        os.chmod(path, mode & ~0o077)
    except OSError:
        return False
    return True


def _is_foreign(found: os.stat_result) -> bool:
    return found.st_uid not in (os.geteuid(), 0)


def _some(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def finish_restore(data_dir: Path) -> Path | None:
    """Finish an exchange of everything in the folder, if one was begun; returns where the old contents are.

    It is begun by renaming a folder with the new contents to `RESTORING` and a name. Killed at any point it is
    finished by the next call; `DataDirectoryError` where the disk does not let it. Sandboxes stay where the instance
    stays the same. Needs the lock.
    """
    try:
        return _finish_restore(data_dir)
    except OSError as error:
        raise DataDirectoryError(
            f"what is being restored cannot be put into its place in {data_dir} ({error.strerror or error}); nothing is"
            " lost: see to that disk, and start the server, which finishes it"
        ) from error


def _finish_restore(data_dir: Path) -> Path | None:
    for fresh in sorted(data_dir.glob(f"{RESTORING}*")):
        old = data_dir / (REPLACED + fresh.name.removeprefix(RESTORING))
        old.mkdir(mode=_FOLDER, exist_ok=True)
        give_to_owner(old, data_dir)
        is_same = is_of(data_dir, _read_id(fresh / ID_FILE))
        for path in contents(data_dir):
            if path.name == ID_FILE:  # it says until the end whose sandboxes these are
                shutil.copy2(path, old)
            elif not (is_same and path.name == SANDBOXES):
                path.rename(old / path.name)
        sync_folder(old)
        sync_folder(data_dir)
        fresh.rename(data_dir / (RESTORED + fresh.name.removeprefix(RESTORING)))
    replaced = None
    for fresh in sorted(data_dir.glob(f"{RESTORED}*")):
        for path in fresh.iterdir():
            path.rename(data_dir / path.name)
        sync_folder(data_dir)
        fresh.rmdir()
        replaced = data_dir / (REPLACED + fresh.name.removeprefix(RESTORED))
        with suppress(OSError):  # something was there
            replaced.rmdir()
    return replaced if replaced is not None and replaced.exists() else None


def is_of(data_dir: Path, name: str | None) -> bool:
    """Whether the folder is that of the server of this name; one whose name is missing or damaged is nobody's."""
    try:
        return name is not None and _read_id(data_dir / ID_FILE) == name
    except DataDirectoryError:
        return False


def give_to_owner(path: Path, data_dir: Path) -> None:
    """What root makes in a data folder belongs to whoever the folder does, or the server could not read it."""
    if os.geteuid() == 0:
        owner = data_dir.stat()
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def contents(data_dir: Path) -> list[Path]:
    """What is in a data folder, but for its lock and what restoring has put there."""
    own = (RESTORING, RESTORED, REPLACED, ".")
    return sorted(path for path in data_dir.iterdir() if path.name != LOCK_FILE and not path.name.startswith(own))


LOCK_FILE = "instance.lock"
ID_FILE = "instance-id"
PLUGIN_SCRATCH = ".plugin-"
"""What folders begin with in which plugins are fetched and read; the next start removes those of a killed server."""


def instance_id(data_dir: Path) -> str:
    """The random name of this data folder, made once; labels the containers that belong to it."""
    path = data_dir / ID_FILE
    try:
        found = _read_id(path)
        if found is None:
            temporary = path.with_name(f".{ID_FILE}.{secrets.token_hex(8)}")
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            # Of two processes that do this at once, the first one's name stands.
            try:
                with os.fdopen(descriptor, "w", encoding="ascii") as file:
                    file.write(secrets.token_hex(8) + "\n")
                    file.flush()
                    os.fsync(file.fileno())
                with suppress(FileExistsError):
                    os.link(temporary, path)
                sync_folder(path.parent)
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
    """Held by the server that uses a data folder until its process ends; `InstanceRunningError`: another has it."""

    def __init__(self, data_dir: Path) -> None:
        self.machine_went_down = False
        """Whether the machine has started anew since it was held last, and nobody has looked at the database yet."""
        self._path = data_dir / LOCK_FILE
        self._descriptor: int | None = None

    def __enter__(self) -> Self:
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise DataDirectoryError(f"the file {self._path} cannot be made ({error.strerror or error})") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").partition("\n")[0]
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
        try:
            give_to_owner(self._path, self._path.parent)
            start = os.pread(descriptor, 100, 0).decode("ascii", "replace").partition("\n")[2].strip()
            self.machine_went_down = start not in ("", _machines_start())
            self._write(descriptor, start or _machines_start())
        except OSError as error:
            os.close(descriptor)
            raise DataDirectoryError(
                f"the file {self._path} cannot be written ({error.strerror or error}); see to the disk that it is on"
            ) from error
        self._descriptor = descriptor
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def looked_at(self) -> None:
        """The database is whole, as far as can be seen."""
        if self._descriptor is not None:
            self._write(self._descriptor, _machines_start())
            self.machine_went_down = False

    def _write(self, descriptor: int, start: str) -> None:
        words = f"{os.getpid()}\n{start}\n".encode("ascii")
        os.pwrite(descriptor, words, 0)  # first: where there is no room, what it says stays
        os.ftruncate(descriptor, len(words))


def _machines_start() -> str:
    """What tells one start of this machine from another; "" where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""
