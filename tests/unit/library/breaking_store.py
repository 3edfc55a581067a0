"""Breaks a `FolderEventStore` at each call of its file system, or at each of its lines, and prints what came of it.

Run with the library of ``tests/storage`` preloaded, which makes the calls fail.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import shutil
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from agent_core.errors import EventStoreError
from agent_core.events.folder_store import FolderEventStore
from agent_core.testing.store_contract import new_events, payloads

CALLS = ("write", "fsync", "open", "ftruncate", "rename", "mkdir")
EACH = int(os.environ.get("EACH", "1"))
"""Each line or call; with 10 each tenth one."""

TEXTS = [f'{{"number": {number}}}' for number in range(4)]


async def work(folder: Path, acknowledged: list[str]) -> None:
    """Each text, with a new owner before each second one; what fails is passed over."""
    store, epoch = FolderEventStore(folder), 0
    for number, text in enumerate(TEXTS):
        with contextlib.suppress(EventStoreError):
            epoch = await store.claim("c") if number % 2 == 0 else epoch
            assert await store.append("c", new_events(text, text), epoch=epoch) >= 0
            acknowledged.append(text)
    seen = await payloads(store, "c") if (folder / "c").exists() else []
    assert [text.decode() for text in seen] == [text for text in acknowledged for _ in range(2)], (seen, acknowledged)


async def afterwards(folder: Path) -> list[str]:
    """What a new program finds, once it has gone on."""
    store = FolderEventStore(folder)
    await store.append("c", new_events("after", "after"), epoch=await store.claim("c"))
    found = [text.decode() for text in await payloads(FolderEventStore(folder), "c")]
    assert found[::2] == found[1::2], f"half of an append: {found}"
    return found[:-2:2]


def switch(rule: str) -> None:
    control = Path(os.environ["STORAGE_FAULTS_CONTROL"])
    fresh = control.with_suffix(".new")
    fresh.write_text(rule)
    fresh.replace(control)


def faults(folder: Path) -> dict[str, int]:
    """One call of each kind fails, or all from there on; returns how often something was refused."""
    refused = {"once": 0, "from then on": 0}
    for calls in (*CALLS, ",".join(CALLS)):
        for number in (errno.EIO, errno.ENOSPC, errno.EROFS):
            for count in (1, -1):
                for skip in range(0, 12, EACH):
                    shutil.rmtree(folder, ignore_errors=True)
                    folder.mkdir()
                    acknowledged: list[str] = []
                    switch(f"{calls} {number} {skip} {count}")
                    asyncio.run(work(folder, acknowledged))
                    switch("")
                    found = asyncio.run(afterwards(folder))
                    how = (calls, number, skip, count, found, acknowledged)
                    missing = [text for text in acknowledged if text not in found]
                    assert not missing, how
                    assert found == sorted(found), how
                    assert found == acknowledged or ("ftruncate" in calls and count < 0), how
                    refused["once" if count > 0 else "from then on"] += acknowledged != TEXTS
    return refused


def killed_at(line: int, folder: Path, acks: int) -> None:
    """Work in this process, which ends at this line of the store; what is acknowledged is written to `acks`."""
    left = line

    def count(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.endswith("folder_store.py"):
            return None
        if event == "line":
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return count

    class Acks(list[str]):
        def append(self, text: str) -> None:
            super().append(text)
            os.write(acks, f"{text}\n".encode())

    threading.settrace(count)
    asyncio.run(work(folder, Acks()))
    os._exit(0)


def kills(folder: Path) -> dict[str, int]:
    line, killed = 1, 0
    while True:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            killed_at(line, folder, writing)
        os.close(writing)
        with open(reading) as file:
            acknowledged = file.read().split("\n")[:-1]
        status = os.waitpid(child, 0)[1]
        found = asyncio.run(afterwards(folder))
        assert found[: len(acknowledged)] == acknowledged, (line, found, acknowledged)
        assert found == TEXTS[: len(found)], (line, found, acknowledged)
        assert len(found) <= len(acknowledged) + 1, (line, found, acknowledged)
        if not os.WIFSIGNALED(status):
            assert os.WEXITSTATUS(status) == 0, line
            return {"killed": killed}
        killed += 1
        line += EACH


if __name__ == "__main__":
    place = Path(os.environ["STORAGE_FAULTS_FOLDER"])
    sys.stdout.write(json.dumps({"faults": faults, "kills": kills}[sys.argv[1]](place)))
