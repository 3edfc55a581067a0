"""A small simulation of many agents on few processors: who waits for what, where no machine of that size can be had."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from bench.figures import p50, percentile


class Station:
    """Something of which there are so many, and a line of those who want one."""

    def __init__(self, places: int) -> None:
        self.free = places
        self.line: deque[Life] = deque()


Life = Generator["float | Station", None, None]
"""What somebody does: it waits for so many seconds, or for a place at a station."""


class Clock:
    """Lets lives go on in the order of time."""

    def __init__(self) -> None:
        self.now = 0.0
        self._numbers = count()
        self._due: list[tuple[float, int, Life]] = []

    def begin(self, life: Life, after: float = 0.0) -> None:
        heapq.heappush(self._due, (self.now + after, next(self._numbers), life))

    def release(self, station: Station) -> None:
        """Give a place back, to the first in line."""
        if station.line:
            self.begin(station.line.popleft())
        else:
            station.free += 1

    def run(self, until: float) -> None:
        while self._due and self._due[0][0] <= until:
            self.now, _, life = heapq.heappop(self._due)
            for wish in life:
                if not isinstance(wish, Station):
                    self.begin(life, wish)
                    break
                if not wish.free:
                    wish.line.append(life)
                    break
                wish.free -= 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """Where agents run: server processes, each of which uses one core at a time, over one database.

    With `database_cores` 0 the database has the same cores as the servers, as on one machine.
    """

    processes: int
    cores: int
    database_cores: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCosts:
    """What one step takes: processor time of its server, of the database, and of all else on the servers' cores.

    It is divided among `turns` to the database, each of which ends with the wait for its disk (`sync_ms`).
    """

    server_ms: float
    database_ms: float = 0.0
    elsewhere_ms: float = 0.0
    turns: int = 1
    sync_ms: float = 0.0

    @property
    def least_ms(self) -> float:
        """What it takes where nobody waits for anybody."""
        return self.server_ms + self.database_ms + self.elsewhere_ms + self.turns * self.sync_ms


class Outcome(NamedTuple):
    """Steps in a second, and what a step took beside model and command, in milliseconds."""

    steps_per_second: float
    p50_ms: float
    p95_ms: float


def simulate(
    agents: int, think_seconds: float, costs: StepCosts, machines: Machines, *, seconds: float = 30.0, seed: int = 0
) -> Outcome:
    """Let so many agents work; each waits about `think_seconds` for its model and its command, then makes a step.

    The first third of the time is not looked at: by then they are no longer where they began.
    """
    clock, chance = Clock(), random.Random(seed)
    cores = Station(machines.cores)
    database = Station(machines.database_cores) if machines.database_cores else cores
    servers = [Station(1) for _ in range(machines.processes)]
    taken: list[float] = []
    turns = costs.turns

    def agent(server: Station) -> Life:
        while True:
            yield think_seconds * chance.uniform(0.8, 1.2)
            began = clock.now
            for _ in range(turns):
                yield server
                yield cores
                yield costs.server_ms / turns / 1000
                clock.release(cores)
                clock.release(server)
                yield database
                yield costs.database_ms / turns / 1000
                clock.release(database)
                yield costs.sync_ms / 1000
            yield cores
            yield costs.elsewhere_ms / 1000
            clock.release(cores)
            if clock.now > seconds / 3:
                taken.append((clock.now - began) * 1000)

    for number in range(agents):
        clock.begin(agent(servers[number % machines.processes]), think_seconds * chance.random())
    clock.run(seconds)
    return Outcome(len(taken) / (seconds * 2 / 3), p50(taken), percentile(taken, 95))
