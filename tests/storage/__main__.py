"""The n-th call of each kind fails, for each thing that a server is asked for: ``python -m tests.storage``."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.storage.faults import build
from tests.storage.sweep import CALLS, ERRORS, NEVER, Outcome, Sweep, Trial, evenly, sweeping, trials


async def main(options: argparse.Namespace) -> int:
    began, outcomes = time.perf_counter(), list[Outcome]()
    with tempfile.TemporaryDirectory(prefix="drydock-storage-") as place:
        async with sweeping(build(Path(place)), Path(place)) as sweep:
            for what in options.things or sweep.things:
                await _all_of(sweep, what, options, outcomes)
            left = await sweep.begin_again()
    failed = [one for one in outcomes if one.findings]
    statuses = Counter(one.status for one in outcomes)
    _say(
        f"{len(outcomes)} trials in {time.perf_counter() - began:.0f} s, answers {dict(statuses)}; {len(failed)} found"
    )
    for finding in left:
        _say(f"FOUND behind the next start: {finding}")
    return 1 if failed or left else 0


async def _all_of(sweep: Sweep, what: str, options: argparse.Namespace, outcomes: list[Outcome]) -> None:
    began, done, chance = time.perf_counter(), Counter[str](), random.Random(options.seed)
    counts = dict[str, int]()
    for call in options.calls or CALLS:
        counted = await sweep.carry_out(Trial(what, call, ERRORS[call][0], NEVER, lasts=False))
        _tell(counted.trial, counted)
        counts[call] = counted.calls
        for skip in evenly(counted.calls, options.of_each, chance):
            for trial in trials(what, call, skip, options.errors):
                outcome = await sweep.carry_out(trial)
                if outcome.failed:
                    outcomes.append(outcome)
                    done[call] += 1
                _tell(trial, outcome)
    _say(f"{what}: {dict(done)} trials, of {counts} calls, in {time.perf_counter() - began:.0f} s")


def _tell(trial: Trial, outcome: Outcome) -> None:
    for finding in outcome.findings:
        _say(f"FOUND {trial.text} ({outcome.status}) {[Path(one).name for one in outcome.failed[:2]]}: {finding}")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.storage", description=__doc__)
    parser.add_argument("things", nargs="*", help="what is asked for (default: all)")
    parser.add_argument("--calls", nargs="*", choices=CALLS, help="which calls fail (default: all)")
    parser.add_argument("--errors", type=int, default=1, help="how many errors of each call (default: one, in turn)")
    parser.add_argument("--of-each", type=int, default=NEVER, help="how many calls of each kind, evenly spread")
    parser.add_argument("--seed", type=int, default=0, help="which of them")
    sys.exit(asyncio.run(main(parser.parse_args())))
