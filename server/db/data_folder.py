"""The data folder: made for this user alone, and made so again where somebody has opened it."""

from __future__ import annotations

import logging
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from server.db.errors import DataDirectoryError

SANDBOXES = "sandboxes"
"""The one folder in it whose content is not the server's: other users run there, each in a part of its own."""

_FOLDER, _FILE = 0o700, 0o600

_log = logging.getLogger(__name__)


def prepare_data_dir(data_dir: Path) -> Path:
    """Make the folder if it is missing and see that it can be written, by this user alone; returns its absolute path.

    Rights of others in the folder, or in files and folders in it, are taken away, and the log says so. Links in it are
    left alone, and the log names those that are not this user's.

    Raises:
        DataDirectoryError: it cannot be used, or belongs to somebody else; the message names it and the fix.
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
            (closed if _take_rights(path, status.st_mode) else open_still).append(f"{path} ({_mode(status)})")
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
    """What is in a folder; links are not followed, and neither sandboxes nor folders of others entered."""
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
    """Leave the rights of its owner only; False where that cannot be."""
    try:
        os.chmod(path, stat.S_IMODE(mode) & ~0o077)
    except OSError:
        return False
    return True


def _mode(status: os.stat_result) -> str:
    return f"mode {stat.S_IMODE(status.st_mode):o}"


def _is_foreign(found: os.stat_result) -> bool:
    return found.st_uid not in (os.geteuid(), 0)


def _some(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
