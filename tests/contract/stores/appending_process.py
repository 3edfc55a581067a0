"""A process that appends until it is killed; each line that it prints is an acknowledged append: log, first id, n."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from agent_core.testing.store_contract import new_events
from server.db.database import open_database

LOGS = 8
LARGE_EVERY = 25


def payload(log: str, serial: int) -> bytes:
    """What is stored as the event number `serial` of `log`; sometimes large enough for the blob store."""
    text = b"%s:%d" % (log.encode(), serial)
    return text if serial % LARGE_EVERY else text + b"." * 1_100_000


async def write(data_dir: Path) -> None:
    async with open_database(data_dir) as database:

        async def grow(log: str) -> None:
            epoch = await database.events.claim(log)
            serial = await database.events.last_id(log) + 1
            while True:
                count = 1 + serial % 3
                data = [payload(log, serial + i) for i in range(count)]
                first = await database.events.append(log, new_events(*data), epoch=epoch)
                sys.stdout.write(f"{log} {first} {count}\n")
                sys.stdout.flush()
                serial += count

        async with asyncio.TaskGroup() as group:
            for n in range(LOGS):
                group.create_task(grow(f"log-{n}"))


if __name__ == "__main__":
    asyncio.run(write(Path(sys.argv[1])))
