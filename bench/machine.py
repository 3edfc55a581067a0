"""Facts about the machine on which the figures were measured; nothing that names it."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import Any

_PROC = Path("/proc")


def machine_facts() -> dict[str, Any]:
    """Processors, memory, versions and how busy it is right now."""
    return {
        "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "processors": len(os.sched_getaffinity(0)),
        "processor": _processor(),
        "memory_mb": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load": [round(one, 2) for one in os.getloadavg()],
    }


def contention(seconds: float = 0.2) -> float:
    """How much longer work takes than it needs, because others use the processors too: 1.0 on a quiet machine."""
    began, used = time.perf_counter(), time.thread_time()
    while time.perf_counter() - began < seconds:
        pass
    return (time.perf_counter() - began) / (time.thread_time() - used)


def processor_seconds(pid: int) -> float:
    """Processor time that the threads of a process have used so far."""
    total = 0
    for task in (_PROC / str(pid) / "task").iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except OSError:
            continue  # a thread that has just ended
    return total / 1e9


def busy_seconds() -> float:
    """Processor time that everything on this machine has used so far."""
    user, nice, system, _, _, *rest = map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:9])
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")


def resident_kb(pid: int) -> int:
    """Memory of a process that stands in RAM, in KiB."""
    pages = int((_PROC / str(pid) / "statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


def begin_peak() -> int:
    """Let `peak_kb` count anew for this process; returns what stands in RAM now, in KiB."""
    (_PROC / "self" / "clear_refs").write_text("5")
    return resident_kb(os.getpid())


def peak_kb() -> int:
    """The most of this process that stood in RAM at one time since `begin_peak`, in KiB."""
    return int((_PROC / "self" / "status").read_text().partition("VmHWM:")[2].split()[0])


def processes_with(word: str) -> list[int]:
    """The processes of this machine, those in containers too, whose command line has this word."""
    found = []
    for folder in _PROC.iterdir():
        if folder.name.isdigit() and is_running(pid := int(folder.name)):
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if word.encode() in words:
                found.append(pid)
    return found


def is_running(pid: int) -> bool:
    """Whether it still runs: a zombie does not."""
    try:
        state = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def _processor() -> str:
    try:
        lines = (_PROC / "cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
