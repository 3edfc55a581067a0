"""Program that ends one local sandbox with its owner's process: ``python guard.py JSON``. Standard library only."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import sys
import time
from typing import Any

_GRACE_SECONDS = 2.0
_LOOK_SECONDS = 0.02
_ROUNDS = 100
_ROLES = ("init", "outer", "network")


def main(order: dict[str, Any]) -> None:
    """Wait, and clean up.

    `order`: ``owner``, its process id and start time; ``folder`` of the sandbox, with ``process.json``; ``joins``, the
    files of its control groups; ``scratch``, the folder that is removed in the end.
    """
    record = _record(order)
    if _wait_for_first([order["owner"], _process(record, "init")]) == 1:
        return  # the sandbox: its owner has ended it, and cleans up itself
    record = _record(order)
    init = _process(record, "init")
    if _lives(init):  # the runner: it ends its shells, and what they have started
        _send(init[0], signal.SIGINT)
        deadline = time.monotonic() + _GRACE_SECONDS
        while _lives(init) and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
    for role in _ROLES:
        process = _process(record, role)
        if _lives(process):
            _send(process[0], signal.SIGKILL)
    for _ in range(_ROUNDS):
        left = _members(order["joins"])
        if not left:
            break
        for pid in left:
            _send(pid, signal.SIGKILL)
        time.sleep(_LOOK_SECONDS)
    for group in {os.path.dirname(path) for path in order["joins"]}:
        with contextlib.suppress(OSError):
            os.rmdir(group)
    shutil.rmtree(order["scratch"], ignore_errors=True)


def _record(order: dict[str, Any]) -> dict[str, Any]:
    try:
        with open(os.path.join(order["folder"], "process.json"), encoding="utf-8") as file:
            record = json.load(file)
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _process(record: dict[str, Any], role: str) -> list[int]:
    return [int(record.get(role, 0)), int(record.get(f"{role}_start", 0))]


def _wait_for_first(processes: list[list[int]]) -> int:
    waiting = select.poll()
    found: dict[int, int] = {}
    for index, process in enumerate(processes):
        try:
            descriptor = os.pidfd_open(process[0])
        except OSError:
            return index
        if not _lives(process):
            return index
        found[descriptor] = index
        waiting.register(descriptor, select.POLLIN)
    return found[waiting.poll()[0][0]]


def _lives(process: list[int]) -> bool:
    try:
        with open(f"/proc/{process[0]}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return int(fields[19]) == process[1] and fields[0] not in (b"Z", b"X")
    except (OSError, ValueError, IndexError):
        return False


def _members(joins: list[str]) -> set[int]:
    found: set[int] = set()
    for path in joins:
        with contextlib.suppress(OSError), open(path, encoding="ascii") as file:
            found.update(int(line) for line in file.read().split())
    return found - {os.getpid()}


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
