"""``python -m bench [NAME ...] [--quick]``: measure, print budget against figure, write JSON to bench/results."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import orjson
import uvloop

from agent_core.errors import DrydockError
from bench import (
    agents,
    append,
    backup,
    clients,
    cluster,
    connected,
    crowd,
    databases,
    editing,
    files,
    first_command,
    kernel,
    listing,
    memory,
    reopen,
    start,
    steps,
    stop,
    terminal,
    view,
)
from bench.figures import Figure, table
from bench.machine import contention, machine_facts
from bench.rounds import ROUNDS, measured
from bench.stage import Stage

Measure = Callable[[Stage], Awaitable[list[Figure]]]

MEASUREMENTS: dict[str, Measure] = {
    "append": append.measure,
    "databases": databases.measure,
    "backup": backup.measure,
    "view": view.measure,
    "steps": steps.measure,
    "crowd": crowd.measure,
    "cluster": cluster.measure,
    "agents": agents.measure,
    "connected": connected.measure,
    "clients": clients.measure,
    "first": first_command.measure,
    "start": start.measure,
    "memory": memory.measure,
    "reopen": reopen.measure,
    "listing": listing.measure,
    "stop": stop.measure,
    "kernel": kernel.measure,
    "editing": editing.measure,
    "files": files.measure,
    "terminal": terminal.measure,
}
RESULTS = Path(__file__).parent / "results"
INTERRUPTED = 130
NOISY = 1.2


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what was named; returns 0, 1 when a measurement failed (a missed budget is none), 130 when ended."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure the performance budgets.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"what to measure: {', '.join(MEASUREMENTS)}")
    parser.add_argument("--case", action="append", metavar="CASE", help="of `clients`: only this kind of client")
    parser.add_argument("--quick", action="store_true", help="a smoke run: shows that it works, not how fast it is")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the JSON (default: bench/results)")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(MEASUREMENTS):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(MEASUREMENTS)}")
    names = options.names or list(MEASUREMENTS)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_run(names, quick=options.quick, output=options.output, cases=options.case or ()))
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.stderr.write("bench: ended before it was done; nothing is left behind\n")
        return INTERRUPTED
    except DrydockError as error:
        sys.stderr.write(f"bench: {error}\n")
        return 1


async def _run(names: Sequence[str], *, quick: bool, output: Path, cases: Sequence[str]) -> int:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    facts = machine_facts()
    found: dict[str, list[Figure]] = {}
    failed: list[str] = []
    busy: dict[str, float] = {}
    began = time.perf_counter()
    async with Stage.open(quick=quick) as stage:
        stage.cases = cases
        stage.say(f"sandbox: {stage.reason}")
        for name in names:
            busy[name] = contention()
            stage.say(f"--- {name} (work takes {busy[name]:.1f} times as long as on a quiet machine)")
            try:
                found[name] = await measured(partial(MEASUREMENTS[name], stage), 1 if quick else ROUNDS)
            except Exception:  # noqa: BLE001 - the others are still worth measuring; this one is told at the end
                traceback.print_exc()
                failed.append(name)
    figures = [figure for group in found.values() for figure in group]
    missed = [figure for figure in figures if figure.met is False]
    print(table(figures))
    print(f"{len(missed)} budgets missed; sandbox {stage.sandbox}; {time.perf_counter() - began:.0f} s")
    if max(busy.values()) > NOISY:
        print(
            f"The machine was busy with other work (up to {max(busy.values()):.1f} times slower): expect worse figures."
        )
    if quick:
        print("A quick run: these figures say only that everything works.")
    print(f"written to {_write(output, {**facts, 'contention': busy}, stage, found, failed)}")
    if failed:
        print(f"FAILED: {', '.join(failed)}")
    return 1 if failed else 0


def _write(
    folder: Path, facts: dict[str, object], stage: Stage, found: dict[str, list[Figure]], failed: list[str]
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{time.strftime('%Y%m%d-%H%M%S')}{'-quick' if stage.quick else ''}.json"
    content = {
        "machine": facts,
        "sandbox": stage.sandbox,
        "quick": stage.quick,
        "failed": failed,
        "figures": {name: [figure.data() for figure in group] for name, group in found.items()},
    }
    path.write_bytes(orjson.dumps(content, option=orjson.OPT_INDENT_2))
    return path


if __name__ == "__main__":
    sys.exit(main())
