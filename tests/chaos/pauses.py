"""How long a client sees nothing when the server that runs its conversation ends, dies or stands still.

``python -m tests.chaos.pauses``, as root: three servers behind HAProxy, as in `tests.chaos.cluster`, with the time that
leases have by themselves; the clients come back as soon as they are cut off. Each line says how long after the signal
the agent's next event came, and the client's longest pause around it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import statistics
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise

from tests.chaos.cluster import House, house
from tests.chaos.cluster_plan import SERVERS, ClusterPlan
from tests.chaos.network import HOME, Machine, leave_the_network
from tests.chaos.users import User
from tests.postgresql import Cluster

COMMANDS = 120
AT_WORK_SECONDS = 2.0
HOW = {"SIGTERM": signal.SIGTERM, "SIGKILL": signal.SIGKILL, "SIGSTOP": signal.SIGSTOP}
_OWNER = "SELECT w.name FROM leases l JOIN witnessed_servers w ON w.id = l.owner WHERE l.conversation_id = '{}'"


async def pause(here: House, name: str, how: str, chance: random.Random) -> float:
    """The longest time without an event that the client of a conversation at work saw."""
    user = User(here.front, name, 1, chance)
    talking = asyncio.create_task(user.live())
    try:
        async with asyncio.timeout(120):
            while len(user.events) < 12:  # noqa: ASYNC110 - a client sees what it sees
                await asyncio.sleep(0.05)
            await asyncio.sleep(chance.uniform(0, AT_WORK_SECONDS))
            rows = await here.database.run(_OWNER.format(user.conversation_id), database=here.name)
            number = int(str(rows[0][0]).rpartition("-")[2])
            server = here.servers[number]
            began = asyncio.get_running_loop().time()
            os.kill(server.pid, HOW[how])
            seen = len(user.events)
            while len(user.events) < seen + 12 or asyncio.get_running_loop().time() < began + AT_WORK_SECONDS:  # noqa: ASYNC110 - so
                await asyncio.sleep(0.05)
            moments = [moment for moment, frame in user.frames if isinstance(frame.get("id"), int)]
            pauses = [after - before for before, after in pairwise(moments) if after > began]
            with suppress(ProcessLookupError):
                os.kill(server.pid, signal.SIGCONT)
            if how != "SIGSTOP":
                await server.stop()
            await here.up(number)
            await here.front.done("POST", f"/api/conversations/{user.conversation_id}/stop", chance)
            return max(pauses)
    finally:
        talking.cancel()
        await asyncio.wait([talking])
        await user.leave()


async def measure(times: int, lease_seconds: float, signals: Sequence[str]) -> None:
    machines, database, chance = [Machine(number) for number in range(SERVERS)], Cluster(HOME), random.Random(0)
    try:
        await asyncio.to_thread(database.start)
        async with house(machines, database, steps=COMMANDS, lease_seconds=lease_seconds) as here:
            await here.arm(ClusterPlan(0, 0, 0, (0,) * SERVERS, ()))
            for kind, how in enumerate(signals):
                seen = [await pause(here, f"u{kind}{number}", how, chance) for number in range(times)]
                line = f"{how}: median {statistics.median(seen):.2f} s, longest {max(seen):.2f} s of {times}"
                sys.stdout.write(f"{line} ({', '.join(f'{one:.2f}' for one in seen)})\n")
                sys.stdout.flush()
    finally:
        database.close()
        for machine in machines:
            machine.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.pauses", description=__doc__)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--signals", nargs="+", choices=list(HOW), default=list(HOW))
    parser.add_argument("--lease-seconds", type=float, default=10.0)
    chosen = parser.parse_args()
    leave_the_network()
    asyncio.run(measure(chosen.times, chosen.lease_seconds, chosen.signals))
