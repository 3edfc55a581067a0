"""The driver: as many seeded runs as are wanted, some at the same time, and what they found."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter

from tests.chaos.points import pass_name
from tests.chaos.run import Outcome, Plan, carry_out, not_passed, places, plan_of, unharmed


async def main(options: argparse.Namespace) -> int:
    if options.seed is not None:
        plans = [plan_of(options.seed, options.provider)]
    else:
        # First one in which nothing is killed: a point that the workload does not come by would prove nothing.
        plans = [unharmed(options.provider)]
        plans += [plan_of(seed, options.provider) for seed in range(options.start, options.start + options.runs)]
    gate, outcomes, began = asyncio.Semaphore(options.together), list[Outcome](), time.perf_counter()

    async def one(plan: Plan) -> None:
        async with gate:
            outcome = await carry_out(plan)
        if plan.is_unharmed:
            outcome.findings += [f"the workload does not come by: {place}" for place in not_passed(outcome)]
        outcomes.append(outcome)
        figures = f"[{outcome.deaths + outcome.victims} kills, {outcome.seconds:.1f} s]"
        _say(f"{len(outcomes)}/{len(plans)} {'FOUND' if outcome.findings else 'ok'} {plan.text} {figures}")
        for finding in outcome.findings:
            _say(f"    {finding}")

    async with asyncio.TaskGroup() as group:
        for plan in plans:
            group.create_task(one(plan))
    _summarise(options.provider, outcomes, time.perf_counter() - began)
    return 1 if any(one.findings for one in outcomes) else 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _summarise(provider: str, outcomes: list[Outcome], seconds: float) -> None:
    bad = [one for one in outcomes if one.findings]
    killed = Counter(name for one in outcomes for name in one.reached)
    there, deaths = places(provider), sum(one.deaths for one in outcomes)
    _say(
        f"{len(outcomes)} runs ({provider}), {deaths} kills in {seconds:.0f} s: at {len(killed)} of {len(there)} "
        f"places, {deaths - killed.total()} times at a moment, and {sum(one.victims for one in outcomes)} other "
        f"processes; {len(bad)} runs with findings"
    )
    if left := [f"{point.name}, {side}" for number, point, side in there if not killed[pass_name(number, side)]]:
        _say(f"not killed at: {'; '.join(left)}")
    for one in bad:
        _say(f"  {one.plan.text}: {'; '.join(one.findings)[:400]}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--runs", type=int, default=500, help="how many (default: 500)")
    parser.add_argument("--start", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--provider", choices=("local", "docker"), default="local", help="what makes the sandboxes")
    parser.add_argument("--together", type=int, default=2, help="how many at the same time (default: 2)")
    sys.exit(asyncio.run(main(parser.parse_args())))
