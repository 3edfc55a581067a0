"""What is left free on the server's disks: without it, logs and databases fail, of all users at once."""

from __future__ import annotations

import os
from collections.abc import Sequence

from agent_core.errors import SandboxError

DISK_RESERVE = "STATUS$ERROR_DISK_RESERVE"
"""Id of what is told when sandboxes are frozen, because the disk is nearly full."""
_ENTRIES = 10_000
"""Files and folders that are left free, where the file system has a number of them."""
_FASTEST = 2 * 1024**3
_SHORTEST, _LONGEST = 0.1, 2.0


class DiskReserve:
    """Tells whether the free space of some folders' disks is below the reserve.

    Once it was, there is room again only when there is a tenth more than the reserve.

    Args:
        folders: on the disks that are looked at; those that are not there are left out.
        reserve: bytes to be left free; 0: nothing is.
    """

    def __init__(self, folders: Sequence[str], reserve: int) -> None:
        self._folders = folders
        self._reserve = reserve
        self._free = 0
        self.is_low = False

    def problem(self) -> str:
        """Look now: why nothing more may be written, and what to do; "" when there is room."""
        self.is_low = self._is_low() and bool(self._reserve)
        if not self.is_low:
            return ""
        free, reserve = self._free / 1024**2, self._reserve / 1024**2
        return (
            f"The server's disk is nearly full: {free:.0f} MiB are free, and {reserve:.0f} MiB are kept in reserve"
            " (disk_reserve_mb). Until there is room again, no sandbox is started and those"
            " that run are frozen; then they go on by themselves. Remove conversations, or free some space on the disk."
        )

    def check(self) -> None:
        """Look now.

        Raises:
            SandboxError: ``disk_reserve``, there is no room.
        """
        if problem := self.problem():
            raise SandboxError(problem, code="disk_reserve")

    @property
    def free_mb(self) -> int:
        """What was free at the last look, in MiB."""
        return self._free // 1024**2

    @property
    def next_look(self) -> float:
        """Seconds after which to look again: the sooner, the less there is above the reserve."""
        if self.is_low or not self._reserve:
            return _LONGEST / 4
        return min(_LONGEST, max(_SHORTEST, (self._free - self._reserve) / _FASTEST))

    def _is_low(self) -> bool:
        wanted, entries = self._reserve, _ENTRIES
        if self.is_low:
            wanted, entries = wanted + wanted // 10, entries + entries // 10
        low, least = False, None
        for folder in self._folders:
            try:
                found = os.statvfs(folder)
            except OSError:
                continue
            free = found.f_bavail * found.f_frsize
            low = low or free < wanted or (found.f_files > 4 * _ENTRIES and found.f_favail < entries)
            least = free if least is None else min(least, free)
        self._free = least or 0
        return low
