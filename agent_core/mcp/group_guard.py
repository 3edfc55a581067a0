"""Program that kills the process groups on its list when this process ends, however: ``python group_guard.py``.

It reads their ids from a pipe whose other end only this process has. What has left its group is known by a mark in its
environment. Standard library only.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Set

MARK = "DRYDOCK_PROGRAM"
"""Variable of a program, and so of whatever it starts; the value is the program's own."""
_ROUNDS = 20


class GroupGuard:
    """Keeps the list, from any thread. The guard program is started with the first entry."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._program: subprocess.Popen[bytes] | None = None
        self._watched: set[str] = set()

    def watch(self, group: int, mark: str = "") -> None:
        """Have this living process's group, and what carries the mark, killed when we are gone; raises `OSError`."""
        with self._lock:
            entry = f"{group} {_start_of(group)} {mark}".rstrip()
            self._watched.add(entry)
            self._tell(f"+{entry}\n")

    def forget(self, group: int) -> None:
        with self._lock:
            for entry in [entry for entry in self._watched if entry.split(" ")[0] == str(group)]:
                self._watched.discard(entry)
                with contextlib.suppress(OSError):
                    self._tell(f"-{entry}\n")

    def close(self) -> None:
        """End the guard program, which kills what is still on its list; the next `watch` starts another one."""
        with self._lock:
            program, self._program = self._program, None
        if program is not None and program.stdin is not None:
            program.stdin.close()
            program.wait()

    def _tell(self, line: str) -> None:
        if self._program is None or self._program.poll() is not None:
            if self._program is None:
                atexit.register(self.close)
            elif self._program.stdin is not None:
                self._program.stdin.close()
            self._program = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-I", "-S", __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={},
                start_new_session=True,  # Ctrl-C is meant for this process, which then ends its programs itself
                bufsize=0,
            )
            line = "".join(f"+{entry}\n" for entry in sorted(self._watched))
        if self._program.stdin is not None:
            self._program.stdin.write(line.encode())


def main() -> None:
    """Keep the list that standard input gives; at its end, kill what is on it."""
    watched: set[str] = set()
    for line in sys.stdin:
        entry = line[1:].strip()
        if line.startswith("+"):
            watched.add(entry)
        else:
            watched.discard(entry)
    marks: set[str] = set()
    for entry in watched:
        group, start, *mark = entry.split()
        marks.update(mark)
        if _start_of(int(group)) in (int(start), 0):  # another start: its id has gone to a stranger by now
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(int(group), signal.SIGKILL)
    end_marked(marks)


def end_marked(marks: Set[str]) -> None:
    """Kill all processes that carry one of the marks, in a bounded number of rounds: some may be forking just then."""
    variables = {f"{MARK}={mark}".encode() for mark in marks}
    for _ in range(_ROUNDS if variables else 0):
        found = [pid for pid in os.listdir("/proc") if pid.isdigit() and not variables.isdisjoint(_environment_of(pid))]
        if not found:
            return
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(int(pid), signal.SIGKILL)


def _environment_of(pid: str) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:  # gone, or another user's
        return []


def _start_of(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


GROUP_GUARD = GroupGuard()
"""The one guard of this process."""

if __name__ == "__main__":
    main()
