"""What is put into a container before it starts: the runner's code and its folders, as one tar archive."""

from __future__ import annotations

import io
import tarfile
import time
from functools import cache
from pathlib import Path

from agent_core.runtime.naming import RUNNER_ROOT, STATE_DIR, WORKSPACE
from runtime_images.runner import wire

_ROOT_MODE = 0o755


@cache
def runner_files() -> tuple[tuple[str, bytes], ...]:
    """``(path below the runner's package, content)`` of its code, read once per process."""
    package = Path(wire.__file__).parent
    return tuple((str(path.relative_to(package)), path.read_bytes()) for path in sorted(package.rglob("*.py")))


@cache
def runner_archive(uid: int, gid: int, with_workspace: bool) -> bytes:
    """A tar archive to unpack at ``/``: code of the runner, its state folder and, if wished, the workspace's owner.

    The code belongs to root and cannot be changed from within; state, home and workspace belong to `uid`.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        _folder(archive, RUNNER_ROOT, _ROOT_MODE, 0, 0)
        _folder(archive, f"{RUNNER_ROOT}/runner", _ROOT_MODE, 0, 0)
        _folder(archive, STATE_DIR, 0o700, uid, gid)
        _folder(archive, f"{RUNNER_ROOT}/home", 0o700, uid, gid)
        for name, content in runner_files():
            for parent in reversed(Path(name).parents[:-1]):
                _folder(archive, f"{RUNNER_ROOT}/runner/{parent}", _ROOT_MODE, 0, 0)
            entry = tarfile.TarInfo(f"{RUNNER_ROOT}/runner/{name}".lstrip("/"))
            entry.size = len(content)
            entry.mode = 0o644
            entry.mtime = int(time.time())
            archive.addfile(entry, io.BytesIO(content))
        if with_workspace:
            _folder(archive, WORKSPACE, 0o755, uid, gid)
    return buffer.getvalue()


def _folder(archive: tarfile.TarFile, path: str, mode: int, uid: int, gid: int) -> None:
    entry = tarfile.TarInfo(path.lstrip("/"))
    entry.type = tarfile.DIRTYPE
    entry.mode = mode
    entry.uid, entry.gid = uid, gid
    entry.mtime = int(time.time())
    archive.addfile(entry)
