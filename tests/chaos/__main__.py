"""The driver: as many seeded runs as are wanted, some at the same time, and what they found."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter

from tests.chaos.run import Outcome, carry_out, plan_of, places, unharmed


async def main(options: argparse.Namespace) -> int:
    seeds = [options.seed] if options.seed is not None else range(options.start, options.start + options.runs)
    plans = (
        [plan_of(seed, options.provider) for seed in seeds] if not options.unharmed else [unharmed(options.provider)]
    )
    gate, outcomes, began = asyncio.Semaphore(options.together), list[Outcome](), time.perf_counter()

    async def one(plan) -> None:  # type: ignore[no-untyped-def]
        async with gate:
            outcome = await carry_out(plan)
        outcomes.append(outcome)
        mark = "FOUND" if outcome.findings else "ok"
        print(
            f"{len(outcomes)}/{len(plans)} {mark} {plan.text} [{outcome.deaths} deaths, {outcome.seconds:.1f} s]",
            flush=True,
        )
        for finding in outcome.findings:
            print(f"    {finding}", flush=True)

    async with asyncio.TaskGroup() as group:
        for plan in plans:
            group.create_task(one(plan))
    bad = [one for one in outcomes if one.findings]
    killed = Counter(name for one in outcomes for name in one.reached)
    deaths = sum(one.deaths for one in outcomes)
    print(f"{len(outcomes)} runs ({options.provider}), {deaths} kills in {time.perf_counter() - began:.0f} s;", end=" ")
    print(f"killed at {len(killed)} of {len(places(options.provider))} places; {len(bad)} runs with findings")
    if left := [f"{p.name}, {side}" for n, p, side in places(options.provider) if not killed[f"{n}:{side}"]]:
        print(f"not killed at: {'; '.join(left)}")
    if options.unharmed:
        for number, point, side in places(options.provider):
            print(f"{number:3} {point.name}, {side}: {outcomes[0].passes.get(f'{number}:{side}', 0)}")
    for one in bad:
        print(f"  {one.plan.text}: {'; '.join(one.findings)[:400]}")
    return 1 if bad else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--runs", type=int, default=500, help="how many (default: 500)")
    parser.add_argument("--start", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--provider", choices=("local", "docker"), default="local", help="what makes the sandboxes")
    parser.add_argument("--together", type=int, default=2, help="how many at the same time (default: 2)")
    parser.add_argument("--unharmed", action="store_true", help="kill nothing, and show what is passed")
    sys.exit(asyncio.run(main(parser.parse_args())))
