"""`MemoryCeiling`: how much memory the server may have, what the machine has left, and why nothing more may begin."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from agent_core.errors import EventStoreError, SandboxError

MEMORY_CEILING: Final = "memory_ceiling"
"""Code of the error, and of the trouble that is counted: nothing more may begin, for want of memory."""

LOOK_SECONDS: Final = 1.0
"""How often the server looks how much memory there is."""

_MEGABYTE: Final = 1024**2
_LEAST: Final = 768 * _MEGABYTE
"""A server with every part loaded has some 300 MiB before it has done anything."""
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_CONTROL_GROUPS: Final = Path("/sys/fs/cgroup")
_MEMBERSHIP: Final = Path("/proc/self/cgroup")


class MachineMemory(NamedTuple):
    """Memory in bytes, of the machine or of the control group that the server is in, whichever has less left."""

    total: int
    free: int


class MemoryCeiling:
    """Tells whether the server has more memory than `limit` bytes, or its machine next to none left.

    None for half of the machine's, or of what its control group may have; 0 for no ceiling. Once there was too little
    there is enough again only with a tenth to spare.
    """

    def __init__(self, limit: int | None) -> None:
        total = machine_memory().total
        self.limit = min(total, max(_LEAST, total // 2)) if limit is None else limit
        self.reserve = min(512 * _MEGABYTE, total // 20) if self.limit else 0
        self.is_reached = False
        self.has_refused = False

    def problem(self) -> str:
        """Why nothing more may begin, and what to do, as of now; "" when there is memory."""
        if not self.limit:
            return ""
        used, free = server_memory(), machine_memory().free
        spare = 10 if self.is_reached else 0
        above, little = used > self.limit * (100 - spare) // 100, free < self.reserve * (100 + spare) // 100
        self.is_reached = above or little
        if not self.is_reached:
            return ""
        what = (
            f"The server has {used // _MEGABYTE} MiB of memory, and may have {self.limit // _MEGABYTE} (max_memory_mb)"
        )
        if not above:
            kept = self.reserve // _MEGABYTE
            what = f"The server's machine has {free // _MEGABYTE} MiB of memory left, and {kept} are kept in reserve"
        return (
            f"{what}. What is at work goes on, and nothing more begins until there is memory again. End what is not"
            " needed, or give the server more."
        )

    def check(self) -> None:
        if problem := self.problem():
            self.has_refused = True  # until somebody has seen to it
            raise SandboxError(f"{problem} Try again in a moment.", code=MEMORY_CEILING)

    def unreadable(self) -> EventStoreError | None:
        """The error of whoever wants to read something large while there is no memory for it; None: there is."""
        problem = self.problem()
        return EventStoreError(f"A large event is not read now. {problem}", code=MEMORY_CEILING) if problem else None

    @property
    def is_near(self) -> bool:
        """Whether it is time to give back what is not needed: four fifths of the ceiling, or twice the reserve."""
        if not self.limit:
            return False
        return server_memory() > self.limit * 4 // 5 or machine_memory().free < self.reserve * 2


def server_memory() -> int:
    """What this process has in memory (bytes)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


def whole_memory() -> MachineMemory:
    """The memory of this machine, whatever part of it this process may have."""
    facts = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return MachineMemory(*(int(facts[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable")))


def machine_memory() -> MachineMemory:
    """The memory of this machine, or of the tightest control group around this process."""
    around = [whole_memory(), *_control_groups(_MEMBERSHIP.read_text(), _CONTROL_GROUPS)]
    return MachineMemory(min(one.total for one in around), min(one.free for one in around))


def processors() -> int:
    """How many this process may use: those it may run on, or what the tightest control group around it leaves it."""
    return _processors(len(os.sched_getaffinity(0)), _MEMBERSHIP.read_text(), _CONTROL_GROUPS)


def _processors(most: int, membership: str, root: Path) -> int:
    for folder in _folders("cpu", membership, root):
        try:
            if (whole := folder / "cpu.max").exists():
                quota, period = whole.read_text().split()
            else:
                quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
            if quota.strip().isdigit():  # "max", or -1, where there is none
                most = min(most, max(1, round(int(quota) / int(period))))
        except (OSError, ValueError, ZeroDivisionError):
            continue
    return most


def _folders(controller: str, membership: str, root: Path) -> Iterator[Path]:
    """Those of this process's control groups, of either version, from the lines of its ``/proc/self/cgroup``."""
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        mount, inside = root / controller if controllers else root, Path(path.lstrip("/"))
        yield from (mount / inside, *(mount / one for one in inside.parents))


def _control_groups(membership: str, root: Path) -> Iterator[MachineMemory]:
    for folder in _folders("memory", membership, root):
        is_first = (folder / "memory.limit_in_bytes").exists()
        names = ("limit_in_bytes", "usage_in_bytes") if is_first else ("max", "current")
        try:
            limit, used = ((folder / f"memory.{name}").read_text().strip() for name in names)
            facts = dict(one.split() for one in (folder / "memory.stat").read_text().splitlines())
        except (OSError, ValueError):  # another way of mounting, or the root, which has none
            continue
        if limit.isdigit() and int(limit) < 1 << 60:  # version 1 writes a huge number for none
            kind = "total_" if "total_inactive_file" in facts else ""
            # All of the page cache is given back when it is wanted, also what was read more than once.
            given_back = sum(int(facts.get(f"{kind}{name}_file", 0)) for name in ("inactive", "active"))
            yield MachineMemory(int(limit), int(limit) - int(used) + given_back)


def give_back() -> None:
    """Let the kernel have what this process has freed. Blocks for some ten milliseconds, more in a large one."""
    gc.collect()
    give_back_freed()


def give_back_freed() -> None:
    """The same without a look for garbage, which is most of the time that it takes."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's alone
    if trim is not None:
        trim(0)
