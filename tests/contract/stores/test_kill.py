"""What was acknowledged is there after `kill -9`, whatever the process was doing."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from pathlib import Path

from agent_core.testing.store_contract import payloads
from server.db.database import Database, open_database
from tests.contract.stores.appending_process import LOGS, payload

ROOT = Path(__file__).parents[3]
ROUNDS = 4


async def acknowledged_until_killed(data_dir: Path, appends: int) -> dict[str, int]:
    """Let a process append, kill it at some moment after so many appends; the last acknowledged id of each log."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.contract.stores.appending_process", str(data_dir), cwd=ROOT, stdout=-1
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            lines = [await process.stdout.readline() for _ in range(appends)]
    finally:
        process.send_signal(signal.SIGKILL)
        lines += (await process.stdout.read()).splitlines(keepends=True)
        await process.wait()
    last: dict[str, int] = {}
    for line in lines:
        if line.endswith(b"\n"):
            log, first, count = line.decode().split()
            last[log] = int(first) + int(count) - 1
    return last


async def check(database: Database, last: dict[str, int]) -> None:
    for n in range(LOGS):
        log = f"log-{n}"
        stored = await payloads(database.events, log)
        assert len(stored) > last.get(log, -1)
        assert stored == [payload(log, serial) for serial in range(len(stored))]


async def test_everything_acknowledged_is_there_after_a_kill(tmp_path: Path) -> None:
    for _ in range(ROUNDS):
        last = await acknowledged_until_killed(tmp_path, appends=random.randint(1, 400))
        assert last
        async with open_database(tmp_path) as database:
            await check(database, last)
            used = await database.events.blobs_in_use()
            await database.blobs.collect(used, older_than_seconds=-1)
            await check(database, last)
