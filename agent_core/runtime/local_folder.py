"""The folder of one local sandbox on this host: what is in it, whose it is, and what runs."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agent_core.runtime import local_view, processes
from agent_core.runtime.injection import runner_files
from agent_core.runtime.naming import SOCKET_NAME
from agent_core.runtime.processes import ProcessId
from agent_core.runtime.sandbox import SandboxSpec

RECORD = "sandbox.json"
_LONGEST_SOCKET = 100
_FIRST_UID, _UIDS = 1_900_000_000, 50_000_000
_LOG_KEPT = 1500


class SandboxFolder:
    """``workspace``, ``home`` and ``state`` belong to the sandbox's user; all else to the server alone.

    ``runner`` is the runner's code, ``etc`` the sandbox's own /etc, ``sandbox.json`` says whose it is, ``process.json``
    what runs, ``log`` what it wrote before the runner did, ``paused`` that it is frozen. Methods block for as long as
    a disk takes.
    """

    def __init__(self, data_dir: str, name: str, workspace: str = "") -> None:
        self.name = name
        self.path = Path(data_dir, "sandboxes", name).absolute()
        self._given = workspace

    @property
    def socket(self) -> Path:
        """Where the runner listens."""
        return self.path / "state" / SOCKET_NAME

    @property
    def workspace(self) -> Path:
        """The conversation's files: a folder of its own, or the one that it was given."""
        return Path(self._given) if self._given else self.path / "workspace"

    def prepare(self, spec: SandboxSpec, *, confined: bool) -> int | None:
        """Make everything that a start needs; returns the user to run as when this process is root."""
        uid = self._uid(confined)
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.mkdir(mode=0o711, exist_ok=True)
        self.write(RECORD, {"instance": spec.instance_id, "conversation": spec.conversation_id, "uid": uid})
        for name in ("workspace", "home", "state"):
            folder = self.path / name
            folder.mkdir(mode=0o700, exist_ok=True)
            if uid is not None and folder.stat().st_uid != uid:
                os.chown(folder, uid, uid)
        for stale in (self.socket, self.path / "paused", self.path / "log"):
            stale.unlink(missing_ok=True)
        etc = self.path / "etc"
        etc.mkdir(mode=0o755, exist_ok=True)
        for name, text in local_view.OWN_FILES.items():
            (etc / name).write_text(text)
        code = self.path / "runner"
        remove_tree(code)
        for name, content in runner_files():
            target = code / name
            target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            target.write_bytes(content)
        return uid

    def exists(self) -> bool:
        """Whether it was prepared once and not removed since."""
        return (self.path / "workspace").is_dir()

    def remove(self) -> None:
        """Remove all of it."""
        remove_tree(self.path)

    def copy_workspace(self, name: str) -> str:
        """Copy the workspace, without sockets, pipes and devices; returns where to. Nothing may run meanwhile."""
        target = self.path / "snapshots" / name
        shutil.copytree(self.workspace, target, symlinks=True, ignore=_only_plain)
        return str(target)

    def bindable_socket(self) -> str:
        """The socket's path, by way of a short link when it would be too long for a socket address."""
        if len(os.fsencode(self.socket)) <= _LONGEST_SOCKET:
            return str(self.socket)
        place = tempfile.mkdtemp(prefix="drydock-")
        self.write("link.json", {"place": place})
        link = Path(place, "s")
        link.symlink_to(self.socket.parent)
        return str(link / SOCKET_NAME)

    # --- what runs ---

    def process(self, role: str) -> ProcessId | None:
        """A process as it was noted: ``outer``, ``init``, ``runner``, ``network``."""
        record = self.read("process.json")
        pid, start = record.get(role), record.get(f"{role}_start")
        return ProcessId(pid, start) if isinstance(pid, int) and isinstance(start, int) else None

    def note_runner(self, *, confined: bool) -> None:
        """Note which process is the runner: the sandbox counts as stopped when it has ended, whatever else is left."""
        record = self.read("process.json")
        if "runner" in record or "init" not in record:
            return
        within = processes.children_of(record["init"]) if confined else [record["init"]]
        runner = processes.identify(within[0]) if within else None
        if runner is not None:
            self.write("process.json", {**record, "runner": runner.pid, "runner_start": runner.start})

    def forget_processes(self) -> None:
        """Nothing runs any more; what was needed only for that goes."""
        place = self.read("link.json").get("place")
        if isinstance(place, str):
            remove_tree(Path(place))
        with contextlib.suppress(OSError):
            (self.path / "link.json").unlink(missing_ok=True)
            (self.path / "process.json").unlink(missing_ok=True)

    @property
    def frozen(self) -> bool:
        """Whether it was noted as frozen."""
        return (self.path / "paused").exists()

    @frozen.setter
    def frozen(self, value: bool) -> None:
        marker = self.path / "paused"
        if value:
            marker.touch()
        else:
            marker.unlink(missing_ok=True)

    # --- records ---

    def read(self, name: str) -> dict[str, Any]:
        """A record; empty when there is none that can be read."""
        try:
            record = json.loads((self.path / name).read_text())
        except (OSError, ValueError):
            return {}
        return record if isinstance(record, dict) else {}

    def write(self, name: str, record: Mapping[str, Any]) -> None:
        """Replace a record in one step."""
        path = self.path / name
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(record))
        fresh.replace(path)

    def log(self) -> str:
        """The end of what was written before the runner took over."""
        try:
            with (self.path / "log").open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_KEPT))
                return file.read().decode("utf-8", "replace").strip()
        except OSError:
            return ""

    def _uid(self, confined: bool) -> int | None:
        noted = self.read(RECORD).get("uid")
        if isinstance(noted, int):
            return noted
        if not confined or os.geteuid() != 0:
            return None
        if self._given:  # what is made in it belongs to its owner, and that owner's files can be changed
            return os.stat(self._given).st_uid or None
        return user_for(self.name, Path("/proc/self/uid_map").read_text())


def user_for(name: str, uid_map: str) -> int:
    """A user id for one sandbox that nobody else has, as far as this process's user namespace reaches.

    Args:
        name: the sandbox's name, which ends in hexadecimal digits.
        uid_map: content of /proc/self/uid_map.
    """
    number = int(name.rsplit("-", 1)[-1], 16)
    for line in uid_map.splitlines():
        first, _, count = (int(word) for word in line.split())
        if first <= _FIRST_UID and first + count >= _FIRST_UID + _UIDS:
            return _FIRST_UID + number % _UIDS
    return 50_000 + number % 10_000


def remove_tree(folder: Path) -> None:
    """Remove a folder with everything in it, also what its owner may not write; links are not followed."""

    def allow(function: Callable[..., Any], path: str, _error: object) -> None:
        with contextlib.suppress(OSError):
            os.chmod(os.path.dirname(path), 0o700)
        if os.path.isdir(path) and not os.path.islink(path):
            os.chmod(path, 0o700)
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(FileNotFoundError):
                function(path)

    if folder.is_symlink() or not folder.exists():
        return
    shutil.rmtree(folder, onerror=allow)


def _only_plain(folder: str, names: list[str]) -> list[str]:
    """Sockets, pipes and devices are not copied."""
    kinds = ((name, os.lstat(os.path.join(folder, name)).st_mode) for name in names)
    return [name for name, mode in kinds if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))]
