"""The sandbox's disk limit: measures what is used and ends the processes that write when it is exceeded."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import Any, Callable, Dict, List, NamedTuple, Sequence

from . import processes
from .disk_usage import TreeUsage, measure
from .journal import JournaledAnswer

_FASTEST_BYTES = 4 * 1024**3
_FASTEST_ENTRIES = 400_000
"""Entries that can be made within a second: as long as more are free, a look can wait."""
_SHORTEST, _LONGEST = 0.05, 1.0
_AGE = 5.0
_SHARE = 20
"""A full measurement takes at most one part in so many of the time, as long as there is room."""

Remark = Callable[[JournaledAnswer], JournaledAnswer]


class _Free(NamedTuple):
    bytes: Sequence[int]
    entries: Sequence[int]


class DiskLimiter:
    """Watches, in a thread of its own, the disk usage below some folders.

    Everything is measured only when the file systems' free space, a cheap look, shows that much can have changed. Over
    the limit, all processes of the sandbox but this one are killed; what runs afterwards to free room is left alone for
    as long as the usage does not grow.
    """

    def __init__(self, roots: Sequence[str], most_bytes: int, most_entries: int, *, alone: bool) -> None:
        """``alone``: all visible processes are the sandbox's. 0 bytes or entries: no limit."""
        places = sorted({os.path.realpath(root) for root in roots} - {"/"})
        self._roots = [one for one in places if not any(one.startswith(f"{other}/") for other in places)]
        self._most_bytes = most_bytes
        self._most_entries = most_entries
        self._alone = alone
        self._least = TreeUsage()
        self._free = self._ended_at = _Free((), ())
        self._looked = self._cost = 0.0
        self._closing = threading.Event()
        self._settled = threading.Event()
        self._settled.set()
        self._is_unreported = self._is_asked = False
        self.usage = TreeUsage()
        self.is_over = False
        self.stops = 0

    def start(self) -> None:
        if self._most_bytes or self._most_entries:
            with contextlib.suppress(RuntimeError):  # no further thread can be had; whoever is outside looks, too
                threading.Thread(target=self._watch, name="room", daemon=True).start()

    def close(self) -> None:
        self._closing.set()

    def state(self) -> Dict[str, Any]:
        """Return what is known; whoever asks may have seen more from outside, so the next look comes soon.

        The free space of a file system says nothing of what is written here while others free as much.
        """
        self._is_asked = True
        return {"bytes": self.usage.bytes, "entries": self.usage.entries, "over": self.is_over, "stops": self.stops}

    def refusal(self, more: int) -> str:
        """Say why so many more bytes cannot be written; "" when they can."""
        if self.is_over:
            return self.words()
        if self._most_bytes and self.usage.bytes + more > self._most_bytes:
            return f"There is no room for {_amount(more)} more. {self.words()}"
        return ""

    def remark(self) -> Remark:
        """Return what adds to a request's answer why processes were killed meanwhile, if they were."""
        self._settled.wait(3.0)  # what it starts would be ended with what there is now
        stops_before = self.stops

        def add(answer: JournaledAnswer) -> JournaledAnswer:
            if self.stops == stops_before and not self.is_over and not self._is_unreported:
                return answer
            error, result = answer.get("error"), answer.get("result")
            if error is not None:
                self._is_unreported = False
                return {**answer, "error": {**error, "message": f"{error['message']} {self.words()}"}}
            if not isinstance(result, dict) or "notice" not in result:
                return answer
            self._is_unreported = False
            return {**answer, "result": {**result, "notice": f"{result['notice']}\n{self.words()}".strip()}}

        return add

    def words(self) -> str:
        most = f" of {_amount(self._most_bytes)}" if self._most_bytes else ""
        many = f" of {self._most_entries}" if self._most_entries else ""
        size, count = _amount(self.usage.bytes), self.usage.entries
        about = f"its files take {size}{most}, and are {count}{many} with their folders"
        ended = " What ran in it was ended." if self.stops else ""
        return (
            f"The disk limit of this sandbox is reached: {about}.{ended} Remove files first (du -ah /workspace ~ | sort"
            " -h | tail shows large ones); whatever makes it more is ended."
        )

    # In the thread

    def _watch(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 5)
        while not self._closing.wait(self._pause()):
            now = time.monotonic()
            if self._is_due(now - self._looked):
                self._look()

    def _pause(self) -> float:
        left = _LONGEST
        if self._most_bytes:
            left = min(left, (self._most_bytes - self.usage.bytes) / _FASTEST_BYTES)
        if self._most_entries:
            left = min(left, (self._most_entries - self.usage.entries) / _FASTEST_ENTRIES)
        return max(_SHORTEST, left)

    def _is_due(self, age: float) -> bool:
        if not self._looked:
            return True
        free = self._look_free()
        if len(free.bytes) != len(self._free.bytes):
            return True
        decrease = _decrease(self._free.bytes, free.bytes)
        fewer = _decrease(self._free.entries, free.entries)
        if free == self._free:
            return age > 60.0
        if age < 2 * self._cost:
            return False
        if self.is_over or (self._is_asked and age > _SHARE * self._cost):
            return True
        part = 0.0  # of what was left at the last look: as much has gone since, to this sandbox or to others
        if self._most_bytes:
            part = decrease / max(1, self._most_bytes - self.usage.bytes)
        if self._most_entries:
            part = max(part, fewer / max(1, self._most_entries - self.usage.entries))
        if part >= 0.5:
            return part >= 1 or age > _SHARE / 4 * self._cost
        return age > max(_AGE, _SHARE * self._cost)

    def _look(self) -> None:
        start, is_first = time.monotonic(), not self._looked
        self._is_asked = False
        was_over, usage = self.is_over, self._measured()
        self._looked = time.monotonic()
        self._cost = self._looked - start
        if not usage.exceeds(self._most_bytes, self._most_entries):
            self.is_over = False
        elif is_first:  # so it was before: what runs now may well remove something
            self._least, self._ended_at, self.is_over = usage, self._free, True
        elif was_over and not self._has_grown(usage):
            self._least = TreeUsage(min(usage.bytes, self._least.bytes), min(usage.entries, self._least.entries))
        else:
            self._settled.clear()
            self.stops += 1
            self._is_unreported = True
            try:
                looks, empty = 0, 0
                while looks < 100 and empty < 3:  # what forks and ends all the time may be missed by one look
                    processes.end_children(alone=self._alone)
                    found = processes.of_sandbox(alone=self._alone)
                    for process in found:
                        processes.signal_process(process.pid, signal.SIGKILL)
                    looks, empty = looks + 1, 0 if found else empty + 1
            finally:
                self._settled.set()
            self._least = self._measured()  # what was being written is there now, too
            self._ended_at = self._free
            self.is_over = self._least.exceeds(self._most_bytes, self._most_entries)

    def _measured(self) -> TreeUsage:
        self._free = self._look_free()
        others = processes.of_sandbox(alone=self._alone)
        self.usage = measure(self._roots, [process.pid for process in others], self._most_entries)
        return self.usage

    def _has_grown(self, usage: TreeUsage) -> bool:
        """Whether the usage grew beyond its minimum; a little is what the runner itself writes."""
        bytes_more = usage.bytes - self._least.bytes
        entries_more = usage.entries - self._least.entries
        if not usage.whole:  # what is not seen may be where it is written: then only the file system knows
            bytes_more = max(bytes_more, _decrease(self._ended_at.bytes, self._free.bytes))
            entries_more = max(entries_more, _decrease(self._ended_at.entries, self._free.entries))
        return (bool(self._most_bytes) and bytes_more > max(1024**2, self._most_bytes // 1000)) or (
            bool(self._most_entries) and entries_more > max(64, self._most_entries // 1000)
        )

    def _look_free(self) -> _Free:
        found: List[os.statvfs_result] = []
        for root in self._roots:
            with contextlib.suppress(OSError):
                found.append(os.statvfs(root))
        return _Free([one.f_bfree * one.f_frsize for one in found], [one.f_ffree for one in found])


def _decrease(before: Sequence[int], now: Sequence[int]) -> int:
    return max((one - other for one, other in zip(before, now)), default=0)  # noqa: B905 - Python 3.8 has no strict


def _amount(size: int) -> str:
    for unit, factor in (("GiB", 1024**3), ("MiB", 1024**2)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size // 1024} KiB"
