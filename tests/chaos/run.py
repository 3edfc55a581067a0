"""Kills of a server at every point: ``python -m tests.chaos --runs 500``; a seed repeats its run."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

from agent_core.testing.model_server import ModelServer
from tests.chaos.audit import audit_of_the_engine, audit_of_the_run, audit_of_what_is_left, processes_of
from tests.chaos.points import POINTS, FaultPoint, Side, pass_name
from tests.chaos.workload import PARTS, Workload, model
from tests.contract.webhooks.conftest import receiving
from tests.integration.server.conftest import ServerProcess

RUN_SECONDS = 400.0
_ENVIRONMENT = {
    "DRYDOCK_IDLE_UNLOAD_SECONDS": "1",
    "DRYDOCK_CULL_INTERVAL_SECONDS": "0.3",
    "DRYDOCK_ENABLE_SUB_AGENTS": "true",
}
_PARTS = {"kernel": 0.08, "mcp": 0.25, "subagents": 0.25, "import": 0.3, "rest": 0.3, "fork": 0.4}


@dataclass(frozen=True)
class Plan:
    """What one run does: all of it follows from its seed."""

    seed: int
    provider: str
    parts: frozenset[str]
    kills: tuple[str, ...]
    moment: float | None

    @property
    def is_unharmed(self) -> bool:
        return not self.kills and self.moment is None

    @property
    def text(self) -> str:
        kills = [f"{POINTS[int(one.split(':')[0])].name}, {one.partition(':')[2]}" for one in self.kills]
        kills += [f"after {self.moment:.2f} s"] if self.moment is not None else []
        return f"seed {self.seed} ({self.provider}): {'; '.join(kills) or 'nothing is killed'}"


@dataclass
class Outcome:
    """What came of one run."""

    plan: Plan
    deaths: int = 0
    passes: dict[str, int] = field(default_factory=dict)
    reached: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    seconds: float = 0.0


def places(provider: str) -> list[tuple[int, FaultPoint, Side]]:
    """Every point of this provider, with its sides, in turn."""
    chosen = [(n, one) for n, one in enumerate(POINTS) if one.provider in ("", provider)]
    return [(n, one, side) for n, one in chosen for side in ("before", "after")]


def plan_of(seed: int, provider: str) -> Plan:
    """The seed'th run: two points in turn, in the first round at their first pass, and sometimes one more by chance.

    Each eighth run is killed at a moment instead. What comes after the first kill hits a server that takes up its work.
    """
    rng = random.Random(f"{provider} {seed}")
    parts = {part for part, often in _PARTS.items() if rng.random() < often}
    if seed % 8 == 7:
        return Plan(seed, provider, frozenset(parts), (), rng.uniform(1.0, 15.0))
    all_places, turn = places(provider), 2 * (seed - seed // 8)
    chosen = [all_places[(turn + n) % len(all_places)] for n in range(2)]
    chosen += [rng.choice(all_places)] if rng.random() < 0.3 else []
    kills = []
    for number, point, side in chosen:
        parts |= {point.part} - {""}
        times = 1 if turn < len(all_places) else rng.choice((1, 2, 3, 4, 6, 9, 14))
        kills.append(f"{pass_name(number, side)}:{times}")
    return Plan(seed, provider, frozenset(parts), tuple(kills), None)


def unharmed(provider: str, parts: frozenset[str] = PARTS) -> Plan:
    """The run in which nothing is killed: what it passes shows which points the workload reaches."""
    return Plan(-1, provider, parts, (), None)


def not_passed(outcome: Outcome) -> list[str]:
    """The places that a run did not come by."""
    there = places(outcome.plan.provider)
    return [f"{point.name}, {side}" for number, point, side in there if not outcome.passes.get(pass_name(number, side))]


async def carry_out(plan: Plan) -> Outcome:
    """Do one run and audit it; what is left of a run that failed is removed as far as it can be."""
    outcome = Outcome(plan)
    began = time.perf_counter()
    place = Path(tempfile.mkdtemp(prefix="drydock-chaos-"))
    place.joinpath("tmp").mkdir()
    place.joinpath("home").mkdir()
    environment = {**_ENVIRONMENT, "TMPDIR": str(place / "tmp"), "HOME": str(place / "home")}
    try:
        async with ModelServer(model(plan.parts)) as scripted, receiving() as receiver:
            server = ServerProcess(place / "data", "--sandbox", plan.provider, environment=environment)
            rng = random.Random(plan.seed)
            workload = Workload(server, receiver, scripted.url, place / "trace", list(plan.kills), plan.parts, rng)
            killer = asyncio.create_task(_kill_at(workload, plan.moment)) if plan.moment is not None else None
            try:
                async with asyncio.timeout(RUN_SECONDS):
                    await workload.run()
                    workload.kills.clear()
                    outcome.findings += await audit_of_the_run(workload)
                    await workload.leave()
                    await workload.end()
                    outcome.findings += await asyncio.to_thread(audit_of_what_is_left, workload)
                    if plan.provider == "docker":
                        outcome.findings += await audit_of_the_engine(workload)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is what this run found
                outcome.findings.append(f"{type(error).__name__}: {error}")
                if not isinstance(error, AssertionError):
                    outcome.findings.append(traceback.format_exc())
            finally:
                if killer is not None:
                    killer.cancel()
                outcome.deaths = workload.deaths
                _read_trace(place / "trace", outcome)
                if "Traceback" in server.printed():
                    outcome.findings.append(f"the log has a traceback: {_traceback(server.printed())}")
                with contextlib.suppress(Exception):
                    if outcome.findings:
                        shutil.copy(server.log, f"{tempfile.gettempdir()}/chaos-{plan.provider}-{plan.seed}.log")
                        await _clear(workload)
    finally:
        shutil.rmtree(place, ignore_errors=True)
        outcome.seconds = time.perf_counter() - began
    return outcome


async def _kill_at(workload: Workload, moment: float) -> None:
    """Kill the server so many seconds after it was up first."""
    while not workload.server.url:  # noqa: ASYNC110 - it is another task that changes it
        await asyncio.sleep(0.02)
    await asyncio.sleep(moment)
    with contextlib.suppress(AssertionError, ProcessLookupError):
        await workload.server.kill()


def _read_trace(trace: Path, outcome: Outcome) -> None:
    for line in trace.read_text().splitlines() if trace.exists() else ():
        if line.startswith("killed "):
            outcome.reached.append(line.removeprefix("killed "))
        else:
            outcome.passes[line] = outcome.passes.get(line, 0) + 1


def _traceback(printed: str) -> str:
    lines = printed[printed.index("Traceback") :].splitlines()
    return next((one for one in lines[1:] if not one.startswith(" ")), "")[:300]


async def _clear(workload: Workload) -> None:
    workload.kills.clear()
    server = workload.server
    server.environment = {name: one for name, one in server.environment.items() if name != "FAULT_POINT"}
    async with asyncio.timeout(60):
        if processes_of(server.data_dir):
            await server.close()
