"""Kills of a server at every point: ``python -m tests.chaos --runs 500``; a seed repeats its run."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import shutil
import signal
import socket
import tempfile
import time
import traceback
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from agent_core.testing.model_server import ModelServer
from tests.authorization_server import guarded_tools
from tests.chaos.audit import (
    SCRATCH,
    Belongings,
    audit_of_the_engine,
    audit_of_the_run,
    audit_of_what_is_left,
    processes_of,
    remove_what_is_left,
)
from tests.chaos.points import POINTS, FaultPoint, Side, pass_name
from tests.chaos.script import PLUGIN, model
from tests.chaos.workload import Workload
from tests.contract.webhooks.conftest import receiving
from tests.contract.workspace.git_server import GitServer
from tests.contract.workspace.git_server import git as run_git
from tests.integration.server.conftest import ServerProcess

RUN_SECONDS = 900.0
_ENVIRONMENT = {
    "DRYDOCK_IDLE_UNLOAD_SECONDS": "1",
    "DRYDOCK_CULL_INTERVAL_SECONDS": "0.3",
    "DRYDOCK_ENABLE_SUB_AGENTS": "true",
    "DRYDOCK_HELD_BACK_SECONDS": "2",
    "DRYDOCK_WARM_SANDBOXES": "1",
}
_PARTS = {
    "kernel": 0.08,
    "mcp": 0.2,
    "subagents": 0.2,
    "import": 0.2,
    "rest": 0.25,
    "fork": 0.25,
    "browser": 0.08,
    "plugin": 0.1,
    "keeping": 0.15,
    "queue": 0.15,
    "archive": 0.12,
    "chat": 0.1,
    "condenser": 0.25,
    "confirm": 0.15,
    "late": 0.3,
    "second": 0.3,
    "rotation": 0.08,
    "retention": 0.08,
    "sign-in": 0.08,
    "backup": 0.08,
    "doors": 0.12,
}
_APART = (("confirm", "subagents"), ("confirm", "chat"), ("confirm", "doors"))
"""Of these the second has the last word."""


class Victim(NamedTuple):
    """Another process that is killed: by a pattern of its command line, and the part of the workload that has it.

    `lines` are those whose actions may say in words of their own that they came to nothing.
    """

    pattern: str
    part: str = ""
    lines: frozenset[str] = frozenset()


_SITE = frozenset({"visit", "sent"})
VICTIMS = {
    "runner": Victim(r"\d+ \S*python3 .*run_module\(.runner", lines=_SITE | {"cell", "mcp"}),
    "bwrap": Victim(r"\d+ \S*bwrap ", lines=_SITE | {"cell", "mcp"}),
    "network": Victim(r"\d+ \S*slirp4netns "),
    "kernel driver": Victim("kernel_driver'", "kernel", frozenset({"cell"})),
    "kernel": Victim(r"kernel\.json", "kernel", frozenset({"cell"})),
    "browser driver": Victim("browser_driver'", "browser", _SITE),
    "browser": Victim("--remote-debugging", "browser", _SITE),
    "MCP program": Victim("for line in sys.stdin", "mcp", frozenset({"mcp"})),
    "background": Victim(r"\d+ \S*python3 site\.py", "browser", _SITE),
}


@dataclass(frozen=True)
class Plan:
    """What one run does: all of it follows from its seed; see `Workload` for `kills`."""

    seed: int
    provider: str
    parts: frozenset[str]
    kills: tuple[str, ...] = ()
    victim: tuple[str, float] | None = None

    @property
    def is_unharmed(self) -> bool:
        return not self.kills and self.victim is None

    @property
    def text(self) -> str:
        kills = [
            one if "@" in one else f"{POINTS[int(one.split(':')[0])].name}, {one.partition(':')[2]}"
            for one in self.kills
        ]
        kills += [f"the {self.victim[0]} after {self.victim[1]:.2f} s"] if self.victim is not None else []
        return f"seed {self.seed} ({self.provider}): {'; '.join(kills) or 'nothing is killed'}"


@dataclass
class Outcome:
    """What came of one run."""

    plan: Plan
    deaths: int = 0
    victims: int = 0
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

    What comes after the first kill hits a server that takes up its work. Of eight runs the last one is another kind:
    ended at a moment; ended again and again while it starts, the first time or with work to take up; or another
    process than the server is killed.
    """
    rng = random.Random(f"{provider} {seed}")
    parts = {part for part, often in _PARTS.items() if rng.random() < often}
    all_places, turn = places(provider), 2 * (seed - seed // 8)
    kills: list[str] = []
    victim: tuple[str, float] | None = None
    match (seed // 8) % 4 if seed % 8 == 7 else None:
        case 0:
            kills = [_moment(rng, 15.0, "KILL")]
        case 1:
            kills = [_moment(rng, 0.8), _moment(rng, 0.8), _moment(rng, 1.5)]
        case 2:
            number, _, side = rng.choice(all_places)
            kills = [f"{pass_name(number, side)}:1", _moment(rng, 1.0), _moment(rng, 1.5)]
        case 3 if provider == "local":
            name = rng.choice(sorted(VICTIMS))
            parts |= {VICTIMS[name].part} - {""}
            victim = name, rng.uniform(0.0, 2.0)
            kills = [_moment(rng, 12.0, "KILL")] if rng.random() < 0.3 else []
        case _:
            chosen = [all_places[(turn + n) % len(all_places)] for n in range(2)]
            chosen += [rng.choice(all_places)] if rng.random() < 0.3 else []
            for number, _, side in chosen:
                is_first = turn < len(all_places) or POINTS[number].command
                times = 1 if is_first else rng.choice((1, 2, 3, 4, 6, 9, 14))
                kills.append(f"{pass_name(number, side)}:{times}")
    if any(POINTS[int(one.split(":")[0])].later for one in kills[:1] if "@" not in one):
        kills.insert(0, _AT_WORK)
    parts |= {POINTS[int(one.split(":")[0])].part for one in kills if "@" not in one} - {""}
    if provider != "local":
        parts.discard("browser")  # the usual image has none
    for one, other in _APART:
        if other in parts:
            parts.discard(one)
    return Plan(seed, provider, frozenset(parts), tuple(kills), victim)


_AT_WORK = f"{[point.name for point in POINTS].index('action')}:after:1"


def _moment(rng: random.Random, most: float, name: str = "") -> str:
    return f"{name or rng.choice(('KILL', 'TERM'))}@{rng.uniform(0.05, most):.2f}"


def unharmed(provider: str) -> Plan:
    """The run in which nothing is killed: what it passes shows which points the workload reaches."""
    parts = {point.part for point in POINTS if point.provider in ("", provider)}
    return Plan(-1, provider, frozenset(parts - {""}))


def not_passed(outcome: Outcome) -> list[str]:
    """The places that a run did not come by, though nothing was killed."""
    there = [one for one in places(outcome.plan.provider) if not one[1].later]
    return [f"{point.name}, {side}" for number, point, side in there if not outcome.passes.get(pass_name(number, side))]


async def carry_out(plan: Plan) -> Outcome:
    """Do one run and audit it; what is left of a run that failed is removed as far as it can be."""
    outcome = Outcome(plan)
    began = time.perf_counter()
    place = Path(tempfile.mkdtemp(prefix="drydock-chaos-"))
    environment = dict(_ENVIRONMENT)
    for name, variable in SCRATCH.items():
        place.joinpath(name).mkdir(mode=0o700)
        environment[variable] = str(place / name)
    if "queue" in plan.parts:
        environment["DRYDOCK_MAX_WORKING_CONVERSATIONS"] = "1"
    if "retention" in plan.parts:
        environment |= {"DRYDOCK_RETENTION_DAYS": "1", "DRYDOCK_RETENTION_INTERVAL_SECONDS": "1"}
    try:
        async with ModelServer(model(plan.parts)) as scripted, receiving() as receiver, AsyncExitStack() as stack:
            plugin = ""
            if "plugin" in plan.parts:
                git = GitServer(place / "repositories")
                stack.push_async_callback(asyncio.to_thread, git.close)
                plugin, environment["DRYDOCK_PLUGINS"] = await asyncio.to_thread(_published, git)
            tools = await stack.enter_async_context(guarded_tools()) if "sign-in" in plan.parts else None
            port = _free_port() if plan.parts & {"doors", "sign-in"} else 0
            options = ("--sandbox", plan.provider, "--port", str(port))
            server = ServerProcess(place / "data", *options, environment=environment)
            workload = Workload(
                server,
                receiver,
                scripted,
                place / "trace",
                list(plan.kills),
                plan.parts,
                victim=plan.victim,
                plugin_url=plugin,
                tools=tools,
            )
            tasks = [asyncio.create_task(_kill_another(workload, *plan.victim))] if plan.victim is not None else []
            is_whole = False  # False to its end where it is interrupted
            try:
                async with asyncio.timeout(RUN_SECONDS):
                    await workload.run()
                    workload.kills.clear()
                    for task in tasks:
                        task.cancel()
                    excused = VICTIMS[plan.victim[0]].lines if workload.victims and plan.victim else frozenset()
                    outcome.findings += await audit_of_the_run(workload, excused)
                    there = Belongings(workload)
                    await workload.leave()
                    await workload.end()
                    await asyncio.to_thread(server.sweep)
                    outcome.findings += await asyncio.to_thread(audit_of_what_is_left, workload, there)
                    if plan.provider == "docker":
                        outcome.findings += await audit_of_the_engine(workload)
                is_whole = True
            except Exception as error:  # noqa: BLE001 - whatever it is, it is what this run found
                outcome.findings.append(f"{type(error).__name__}: {error}")
                if not isinstance(error, AssertionError):
                    outcome.findings.append(traceback.format_exc())
            finally:
                for task in tasks:
                    task.cancel()
                workload.spare()
                outcome.deaths, outcome.victims = workload.deaths, workload.victims
                _read_trace(place / "trace", outcome)
                if "Traceback" in server.printed():
                    outcome.findings.append(f"the log has a traceback: {_traceback(server.printed())}")
                with contextlib.suppress(Exception):
                    if outcome.findings:
                        shutil.copy(server.log, f"{tempfile.gettempdir()}/chaos-{plan.provider}-{plan.seed}.log")
                    if outcome.findings or not is_whole:
                        await _clear(workload)
    finally:
        shutil.rmtree(place, ignore_errors=True)
        outcome.seconds = time.perf_counter() - began
    return outcome


def _free_port() -> int:
    """One at which the server is found again after each of its deaths, as whoever was told its address expects."""
    while True:
        port = random.randrange(10_000, 32_000)  # below those that the system gives to connections
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def _published(git: GitServer) -> tuple[str, str]:
    """The address of a plugin's repository, with a tag ``old`` before its newest commit; and the operator's plugin."""
    host = f"http://127.0.0.1:{git.url.rpartition(':')[2]}"
    common = git.publish("ann/common", {".plugin/plugin.json": '{"name": "common"}', "skills/ropes.md": "Ropes hold."})
    git.publish("ann/tools", {**PLUGIN, "boats/.plugin/plugin.json": '{"name": "boats"}'})
    run_git("-C", str(git.folder / "ann/tools.git"), "tag", "old")
    git.commit("ann/tools", {"skills/rafts.md": "Rafts float."})
    return f"{host}/ann/tools.git", f"{host}/ann/common.git#{common}"


async def _kill_another(workload: Workload, name: str, seconds: float) -> None:
    """Kill the first process that fits its pattern, so many seconds after it was seen."""
    pattern = re.compile(VICTIMS[name].pattern, re.DOTALL)

    async def seen() -> list[str]:
        found = await asyncio.to_thread(lambda: list(processes_of(workload.server.data_dir)))
        return [one for one in found if pattern.search(one)]

    while not await seen():  # noqa: ASYNC110 - other processes tell nobody
        await asyncio.sleep(0.1)
    await asyncio.sleep(seconds)
    for one in await seen():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(one.split()[0]), signal.SIGKILL)
            workload.victims += 1
            return


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
    """Have a server delete everything, and remove by hand what then is still there."""
    workload.kills.clear()
    server = workload.server
    server.environment = {name: one for name, one in server.environment.items() if name != "FAULT_POINT"}
    try:
        async with asyncio.timeout(60):
            await server.close()
    finally:
        await asyncio.to_thread(remove_what_is_left, workload)
