"""The folder of one local sandbox on this host."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_core.runtime.injection import runner_files
from agent_core.runtime.local.launch import MISSING
from agent_core.runtime.processes import ProcessId
from agent_core.runtime.sandbox import SOCKET_NAME, SandboxSpec

RECORD = "sandbox.json"
HOME = "/home/agent"
INNER_UID = 1000
RESOLVER = "10.0.2.3"
_FIRST_UID, _UIDS = 1_900_000_000, 50_000_000
_LOG_TAIL = 1500
_SHOWN_FOLDER, _SHOWN_FILE = 0o755, 0o644
"""Modes of what the sandbox's user is to read."""


OWN_FILES: Mapping[str, str] = {
    "passwd": f"root:x:0:0:root:/:/bin/sh\nagent:x:{INNER_UID}:{INNER_UID}:agent:{HOME}:/bin/bash\n"
    "nobody:x:65534:65534:nobody:/:/bin/sh\n",
    "group": f"root:x:0:\nagent:x:{INNER_UID}:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "resolv.conf": f"nameserver {RESOLVER}\n",  # slirp4netns answers there; without it nobody does
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "gitconfig": "[init]\n\tdefaultBranch = main\n[safe]\n\tdirectory = *\n"
    "[user]\n\tname = Drydock agent\n\temail = agent@drydock.invalid\n",
}
"""Files of the sandbox's own /etc."""


class SandboxFolder:
    """The folder of one local sandbox: ``workspace``, ``home`` and ``state`` are its user's; all else is the server's.

    ``runner`` is the runner's code, ``etc`` the sandbox's own /etc, ``sandbox.json`` says whose it is, ``process.json``
    what runs, ``log`` what it wrote before the runner did; `frozen` is there while it is. Methods block.
    """

    def __init__(self, data_dir: str, name: str, workspace: str = "") -> None:
        self.name = name
        self.path = Path(data_dir, "sandboxes", name).absolute()
        self.frozen = self.path / "paused"
        self._workspace = workspace

    @property
    def socket(self) -> Path:
        """Where the runner listens: in no place that the sandbox sees, so nobody there can reach or replace it.

        Sandboxes that an older version has started have it in their state folder, and a process that is the runner.
        """
        return self.path / "state" / SOCKET_NAME if "runner" in self.read("process.json") else self.path / SOCKET_NAME

    @property
    def workspace(self) -> Path:
        """The conversation's files: a folder of its own, or the one that it was given."""
        return Path(self._workspace) if self._workspace else self.path / "workspace"

    @property
    def is_up(self) -> bool:
        """Whether what was started in it still runs, or is frozen."""
        runner = self.runner
        return runner is not None and runner.alive

    def remove(self) -> None:
        """Remove all of it, last what says whose it is: what is left where this is broken off can be found by that."""
        with contextlib.suppress(FileNotFoundError):
            for one in sorted(self.path.iterdir()):
                if one.is_dir() and not one.is_symlink():
                    remove_tree(one)
                elif one.name != RECORD:
                    one.unlink(missing_ok=True)
        remove_tree(self.path)

    def prepare(self, spec: SandboxSpec, *, confined: bool) -> int | None:
        """Make everything that a start needs; returns the user to run as when this process is root."""
        uid = self._uid(confined)
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _make(self.path, 0o711)
        record = {"instance": spec.instance_id, "conversation": spec.conversation_id, "uid": uid}
        fresh = (self.path / RECORD).with_suffix(".new")
        fresh.unlink(missing_ok=True)
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
            file.write(json.dumps(record))
        fresh.replace(self.path / RECORD)
        for name in ("workspace", "home", "state"):
            folder = self.path / name
            folder.mkdir(mode=0o700, exist_ok=True)
            if uid is not None and folder.stat().st_uid != uid:
                os.chown(folder, uid, uid)
        for stale in ("paused", "log", MISSING, SOCKET_NAME, f"state/{SOCKET_NAME}"):
            (self.path / stale).unlink(missing_ok=True)
        etc = self.path / "etc"
        _make(etc, _SHOWN_FOLDER)
        for name, text in OWN_FILES.items():
            (etc / name).write_text(text)
            (etc / name).chmod(_SHOWN_FILE)
        code = self.path / "runner"
        remove_tree(code)
        _make(code, _SHOWN_FOLDER)
        for name, content in runner_files():
            target = code / name
            if not target.parent.exists():  # those above it come before it
                _make(target.parent, _SHOWN_FOLDER)
            target.write_bytes(content)
            target.chmod(_SHOWN_FILE)
        return uid

    def copy_workspace(self, name: str) -> str:
        """Copy the workspace, without sockets, pipes and devices; returns where to. Nothing may run meanwhile."""
        target = self.path / "snapshots" / name
        shutil.copytree(self.workspace, target, symlinks=True, ignore=_special)
        return str(target)

    # --- what runs ---

    def process(self, role: str) -> ProcessId | None:
        """A process as it was noted: ``outer``, ``init`` (the first one inside, which is the runner), ``network``."""
        record = self.read("process.json")
        pid, start = record.get(role), record.get(f"{role}_start")
        return ProcessId(pid, start) if isinstance(pid, int) and isinstance(start, int) else None

    @property
    def runner(self) -> ProcessId | None:
        return self.process("runner") or self.process("init")

    def forget_processes(self) -> None:
        with contextlib.suppress(OSError):
            (self.path / "process.json").unlink(missing_ok=True)

    # --- records ---

    def read(self, name: str) -> dict[str, Any]:
        try:
            record = json.loads((self.path / name).read_text())
        except (OSError, ValueError):
            return {}
        return record if isinstance(record, dict) else {}

    def log(self) -> str:
        return "\n".join(filter(None, (_end_of(self.path / "log"), _end_of(self.path / "state" / "log"))))

    def missing_network(self) -> str:
        try:
            return (self.path / MISSING).read_text(errors="replace").strip()
        except OSError:
            return ""

    def _uid(self, confined: bool) -> int | None:
        noted = self.read(RECORD).get("uid")
        if isinstance(noted, int):
            return noted
        if not confined or os.geteuid() != 0:
            return None
        if self._workspace:  # what is made in it belongs to its owner, and that owner's files can be changed
            return os.stat(self._workspace).st_uid or None
        return user_for(self.name, Path("/proc/self/uid_map").read_text())


def user_for(name: str, uid_map: str) -> int:
    """A user id for one sandbox that nobody else has, as far as the user namespace with this `uid_map` reaches."""
    number = int(name.rsplit("-", 1)[-1], 16)
    for line in uid_map.splitlines():
        first, _, count = (int(word) for word in line.split())
        if first <= _FIRST_UID and first + count >= _FIRST_UID + _UIDS:
            return _FIRST_UID + number % _UIDS
    return 50_000 + number % 10_000


def remove_tree(folder: Path) -> None:
    """Remove a folder with everything in it, also what its owner may not write; links are not followed."""

    def allow(_function: object, path: str, _error: object) -> None:
        with contextlib.suppress(OSError):
            os.chmod(os.path.dirname(path), 0o700)
        if os.path.isdir(path) and not os.path.islink(path):
            os.chmod(path, 0o700)
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    if folder.is_symlink() or not folder.exists():
        return
    shutil.rmtree(folder, onerror=allow)


def _make(folder: Path, mode: int) -> None:
    folder.mkdir(exist_ok=True)
    folder.chmod(mode)


def _end_of(path: Path) -> str:
    """The end of a plain file's text: programs in the sandbox may have put another thing there."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return ""
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_TAIL))
            return file.read(_LOG_TAIL).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _special(folder: str, names: list[str]) -> list[str]:
    kinds = ((name, os.lstat(os.path.join(folder, name)).st_mode) for name in names)
    return [name for name, mode in kinds if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))]
