"""A real server whose clock is set forward by years and back by a day while it works, and which loses nothing by it."""

from __future__ import annotations

import asyncio
import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.server.conftest import MakeProcess, create, following, stored_events

LIBRARY = Path(__file__).parents[2] / "shifted_clock.c"
DAY = 86_400


class Clock:
    """The clock of a server that is started with this `environment`."""

    def __init__(self, folder: Path) -> None:
        self._shift = folder / "shift"
        self.set(0)
        library = folder / "shifted_clock.so"
        compiler = shutil.which("cc")
        assert compiler is not None, "a C compiler is needed (cc)"
        subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, LIBRARY, "-ldl"], check=True, timeout=60)
        self.environment = {"LD_PRELOAD": str(library), "CLOCK_SHIFT": str(self._shift)}

    def set(self, seconds: int) -> None:
        """Shift it so much from the true time."""
        with os.fdopen(os.open(self._shift, os.O_WRONLY | os.O_CREAT, 0o644), "wb") as file:
            file.write(struct.pack("=q", seconds))  # in place: the server has this very file in its memory


@pytest.fixture
def plainly() -> bool:
    return True


def keyed(client: httpx.AsyncClient) -> Any:
    return client.post("/api/conversations", json={}, headers={"Idempotency-Key": "the-same-one"})


async def test_a_clock_that_jumps_deletes_nothing_repeats_nothing_and_disturbs_no_order(
    make_process: MakeProcess, tmp_path: Path
) -> None:
    clock = Clock(tmp_path)
    settings = {"DRYDOCK_RETENTION_DAYS": "30", "DRYDOCK_RETENTION_INTERVAL_SECONDS": "0.2"}
    settings |= {"DRYDOCK_IDLE_UNLOAD_SECONDS": "600", "DRYDOCK_CULL_INTERVAL_SECONDS": "0.2"}
    server = await make_process("--sandbox", "unconfined", environment={**clock.environment, **settings})
    async with server.client() as client:
        untouched = await create(server)
        await client.post(f"/api/conversations/{untouched}/stop")
        once = (await keyed(client)).json()["conversation_id"]
        at_work = await create(server)
        async with following(server, at_work) as follower:
            for number, shift in enumerate((0, 3 * 365 * DAY, -DAY, -3600, 0)):
                clock.set(shift)
                await follower.run(f"echo step {number}")
                await follower.until(lambda number=number: follower.count(observation="run") == number + 1)  # type: ignore[misc]
                assert (await keyed(client)).json()["conversation_id"] == once
                if number == 1:
                    await asyncio.sleep(1)  # several rounds of what deletes and unloads
        listed = (await client.get("/api/conversations")).json()["results"]
        assert {one["conversation_id"] for one in listed} == {untouched, once, at_work}
        assert next(one for one in listed if one["conversation_id"] == at_work)["status"] == "RUNNING"
    events = await stored_events(server, at_work)
    assert [event["id"] for event in events] == list(range(len(events)))
    assert [event["content"].split("\n")[0] for event in events if event.get("observation") == "run"] == [
        f"step {number}" for number in range(5)
    ]
    years = {int(event["timestamp"][:4]) for event in events}
    assert max(years) - min(years) >= 2  # the clock was another one, and the events say what it said
