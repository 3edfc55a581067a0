"""What is done to several servers in one run: all of it follows from the seed."""

from __future__ import annotations

import random
from typing import Final, NamedTuple

from tests.chaos.network import Other, Way
from tests.chaos.points import POINTS, Side, pass_name

SERVERS: Final = 3
LEASE_SECONDS: Final = 2.0
_OTHERS: Final[tuple[Other, ...]] = ("database", "database", "servers", "proxy")
_WAYS: Final[tuple[Way, ...]] = ("both", "both", "in", "out")


class Disturbance(NamedTuple):
    """Something that is done `after` so many seconds: to a server, or to all of them or the database (``server`` -1).

    `seconds` says how long it lasts, where it does; `detail` which point, which way, how the database is stopped.
    """

    kind: str
    after: float
    server: int = -1
    seconds: float = 0.0
    detail: str = ""

    @property
    def text(self) -> str:
        who = f" server {self.server}" if self.server >= 0 else ""
        lasting = f" for {self.seconds:.1f} s" if self.seconds else ""
        detail = f" ({self.detail_text})" if self.detail else ""
        return f"after {self.after:.1f} s {self.kind}{who}{detail}{lasting}"

    @property
    def detail_text(self) -> str:
        if self.kind != "kill at a point":
            return self.detail
        number, side, times = self.detail.split(":")
        return f"{POINTS[int(number)].name}, {side}, pass {times}"


class ClusterPlan(NamedTuple):
    seed: int
    users: int
    words: int
    clocks: tuple[int, ...]
    """By how many seconds each server's clock is wrong."""
    disturbances: tuple[Disturbance, ...]

    @property
    def text(self) -> str:
        wrong = f"clocks {self.clocks}; " if any(self.clocks) else ""
        return f"seed {self.seed}: {wrong}{'; '.join(one.text for one in self.disturbances)}"


def cluster_places() -> list[tuple[int, Side]]:
    """Every point of servers that share a database, with its sides, in turn."""
    numbers = [number for number, point in enumerate(POINTS) if point.provider == "cluster"]
    return [(number, side) for number in numbers for side in ("before", "after")]


def cluster_plan_of(seed: int, *, redis: bool = False) -> ClusterPlan:
    """The seed'th run: three disturbances, the first of a kind that is in turn, each second with a kill at a point.

    With a Redis one more, of that.
    """
    chance = random.Random(f"cluster {seed}")
    makers = (_kill, _freeze, _end, _cut, _cut, _freeze_database, _restart_database, _stop_database, _roll)
    first = makers[seed % len(makers)]
    chosen = [first(chance), *(chance.choice(makers)(chance) for _ in range(chance.choice((1, 2))))]
    if seed % 2:
        places = cluster_places()
        chosen = [*_kill_at(chance, *places[(seed // 2) % len(places)]), *chosen]
    clocks = tuple(chance.choice((-3600, 0, 3600, 86400)) if seed % 4 == 3 else 0 for _ in range(SERVERS))
    users, words = chance.choice((2, 3)), chance.choice((2, 3, 4))
    if redis:
        what = Disturbance(chance.choice(("stop Redis", "freeze Redis")), _soon(chance), seconds=chance.uniform(0.5, 6))
        chosen.insert(chance.randrange(len(chosen) + 1), what)
    return ClusterPlan(seed, users, words, clocks, tuple(chosen))


def _soon(chance: random.Random) -> float:
    return chance.uniform(0.2, 2.0)


def _any(chance: random.Random) -> int:
    return chance.randrange(SERVERS)


def _kill(chance: random.Random) -> Disturbance:
    return Disturbance("kill", _soon(chance), _any(chance), chance.uniform(0.1, 2 * LEASE_SECONDS))


def _freeze(chance: random.Random) -> Disturbance:
    return Disturbance("freeze", _soon(chance), _any(chance), LEASE_SECONDS * chance.uniform(0.5, 2.5))


def _end(chance: random.Random) -> Disturbance:
    return Disturbance("end", _soon(chance), _any(chance), chance.uniform(0.1, LEASE_SECONDS))


def _roll(chance: random.Random) -> Disturbance:
    return Disturbance("end one after the other", _soon(chance))


def _cut(chance: random.Random) -> Disturbance:
    detail = f"{chance.choice(_OTHERS)} {chance.choice(_WAYS)}"
    return Disturbance("cut", _soon(chance), _any(chance), LEASE_SECONDS * chance.uniform(0.5, 2.5), detail)


def _freeze_database(chance: random.Random) -> Disturbance:
    return Disturbance("freeze the database", _soon(chance), seconds=LEASE_SECONDS * chance.uniform(0.2, 2))


def _restart_database(chance: random.Random) -> Disturbance:
    return Disturbance("restart the database", _soon(chance), detail=chance.choice(("fast", "immediate")))


def _stop_database(chance: random.Random) -> Disturbance:
    detail = chance.choice(("fast", "immediate"))
    return Disturbance("stop the database", _soon(chance), seconds=chance.uniform(1, 2 * LEASE_SECONDS), detail=detail)


def _kill_at(chance: random.Random, number: int, side: Side) -> list[Disturbance]:
    """Arm all servers, of which one dies there; what leads there is done to one, where nothing does by itself."""
    point = f"{pass_name(number, side)}:{chance.choice((1, 1, 2, 3))}"
    leads_there = {"drain": _end, "freeze": _freeze}.get(POINTS[number].part)
    armed = Disturbance("kill at a point", 0.0, _any(chance), detail=point)
    if leads_there is None:
        return [armed]
    point = f"{pass_name(number, side)}:{2 if POINTS[number].name == 'server registered' else 1}"
    led = leads_there(chance)._replace(server=armed.server, seconds=2 * LEASE_SECONDS)
    return [armed._replace(detail=point), led]
