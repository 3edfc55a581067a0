"""Control groups of local sandboxes, version 1 or 2; what cannot be had is left to resource limits of processes."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Iterable
from pathlib import Path

from agent_core.runtime.sandbox import SandboxLimits

_MOUNTS = Path("/proc/self/mounts")
_PARENT = "drydock"
_CONTROLLERS = ("pids", "memory", "cpu", "freezer")
_CPU_PERIOD = 100_000
_REMOVE_SECONDS = 2.0


def find_hierarchies(mounts: Iterable[str]) -> dict[str, Path]:
    """Where each controller is mounted, from the lines of a mount table; ``unified`` is version 2."""
    found: dict[str, Path] = {}
    for line in mounts:
        fields = line.split()
        if len(fields) < 4:
            continue
        point, kind, options = Path(fields[1]), fields[2], fields[3].split(",")
        if kind == "cgroup2":
            found["unified"] = point
        elif kind == "cgroup":
            found.update({name: point for name in _CONTROLLERS if name in options})
    return found


class ControlGroup:
    """The control groups of one sandbox, a folder in each hierarchy. Methods block for at most a few milliseconds."""

    def __init__(self, name: str, hierarchies: dict[str, Path] | None = None) -> None:
        self._name = name
        self._hierarchies = hierarchies

    def make(self, limits: SandboxLimits) -> tuple[list[str], frozenset[str]]:
        """Make the groups; returns the files to join by, and which of pids, memory and cpu are limited."""
        joins: list[str] = []
        limited: set[str] = set()
        for folder, names in self._folders().items():
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError:
                continue
            with contextlib.suppress(OSError):  # somebody else's
                os.utime(folder)  # one that was there already is not stale: its sandbox is just starting
            if not (folder / "cgroup.procs").exists():
                continue
            joins.append(str(folder / "cgroup.procs"))
            for name in names:
                with contextlib.suppress(OSError):  # a controller that is not to be had here
                    self._limit(folder, name, limits)
                    limited.add(name)
        return joins, frozenset(limited - {"freezer"})

    def freeze(self, frozen: bool) -> bool:
        """Stop or continue all processes; False when this cannot be done here."""
        done = False
        for folder, names in self._folders().items():
            with contextlib.suppress(OSError):
                if self._is_unified(folder):
                    _write(folder / "cgroup.freeze", int(frozen))
                    done = True
                elif "freezer" in names:
                    _write(folder / "freezer.state", "FROZEN" if frozen else "THAWED")
                    done = True
        return done

    def processes(self) -> set[int]:
        found: set[int] = set()
        for folder in self._folders():
            with contextlib.suppress(OSError, ValueError):
                found.update(int(line) for line in (folder / "cgroup.procs").read_text().split())
        return found

    def remove(self) -> None:
        """Remove the groups once their processes have ended; gives up after two seconds."""
        end = time.monotonic() + _REMOVE_SECONDS
        for folder in self._folders():
            while True:
                try:
                    folder.rmdir()
                except (FileNotFoundError, PermissionError):  # never made, or in a place where only others make any
                    break
                except OSError:
                    if time.monotonic() > end:
                        break
                    time.sleep(0.005)
                else:
                    break

    def _folders(self) -> dict[Path, list[str]]:
        if self._hierarchies is None:
            self._hierarchies = find_hierarchies(_MOUNTS.read_text().splitlines())
        folders: dict[Path, list[str]] = {}
        for name in _CONTROLLERS:
            if name in self._hierarchies:
                folders.setdefault(self._hierarchies[name] / _PARENT / self._name, []).append(name)
        if "unified" in self._hierarchies:
            root = self._hierarchies["unified"]
            missing = [name for name in ("pids", "memory", "cpu") if name not in self._hierarchies]
            if missing:
                _delegate(root, missing)
            folders[root / _PARENT / self._name] = missing
        return folders

    def _is_unified(self, folder: Path) -> bool:
        return self._hierarchies is not None and self._hierarchies.get("unified") in folder.parents

    def _limit(self, folder: Path, controller: str, limits: SandboxLimits) -> None:
        is_unified = self._is_unified(folder)
        if controller == "pids":
            _write(folder / "pids.max", limits.processes)
        elif controller == "memory":
            _write(folder / ("memory.max" if is_unified else "memory.limit_in_bytes"), limits.memory)
            with contextlib.suppress(OSError):  # only where swap is counted
                if is_unified:
                    _write(folder / "memory.swap.max", 0)
                else:
                    _write(folder / "memory.memsw.limit_in_bytes", limits.memory)
        elif controller == "cpu":
            quota = max(1000, int(limits.cpus * _CPU_PERIOD))
            if is_unified:
                _write(folder / "cpu.max", f"{quota} {_CPU_PERIOD}")
            else:
                _write(folder / "cpu.cfs_period_us", _CPU_PERIOD)
                _write(folder / "cpu.cfs_quota_us", quota)


def held_limits() -> frozenset[str]:
    """Which of pids, memory and cpu can be limited here, found out with a group that is removed again."""
    group = ControlGroup(f"{_PARENT}-try-{secrets.token_hex(4)}")
    try:
        return group.make(SandboxLimits())[1]
    finally:
        group.remove()


def remove_stale(age_seconds: float, hierarchies: dict[str, Path] | None = None) -> None:
    """Remove empty groups that sandboxes of any server have left, once so old that none is just starting."""
    found = find_hierarchies(_MOUNTS.read_text().splitlines()) if hierarchies is None else hierarchies
    for root in set(found.values()):
        for folder in (root / _PARENT).glob(f"{_PARENT}-*"):
            with contextlib.suppress(OSError):  # in use, or gone
                if time.time() - folder.stat().st_mtime > age_seconds:
                    folder.rmdir()


def _delegate(root: Path, controllers: list[str]) -> None:
    for folder in (root, root / _PARENT):
        with contextlib.suppress(OSError):
            folder.mkdir(exist_ok=True)
        for name in controllers:
            with contextlib.suppress(OSError):
                _write(folder / "cgroup.subtree_control", f"+{name}")


def _write(path: Path, value: object) -> None:
    # Control files exist already; opening without creating keeps a stray ordinary file from appearing.
    with path.open("r+") as file:
        file.write(str(value))
