"""The driver: as many seeded runs as are wanted, some at the same time, and what they found.

It ends with 0 where nothing was found, with 1 where something was, and where it is told to end (SIGTERM, SIGINT) when
what it has made is gone, with 128 and the signal's number.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from collections import Counter
from contextlib import suppress

from tests.chaos.points import pass_name
from tests.chaos.run import Outcome, Plan, carry_out, not_passed, places, plan_of, unharmed


class Driver:
    """Carries out plans, so many `together`, and says what each has found as soon as it has ended."""

    def __init__(self, plans: list[Plan], together: int) -> None:
        self._plans = plans
        self._gate = asyncio.Semaphore(together)
        self._outcomes: list[Outcome] = []
        self._began = time.perf_counter()
        self._told_to_end: signal.Signals | None = None

    async def run(self) -> int:
        """All of them; returns the exit status."""
        work = asyncio.create_task(self._carry_out_all())
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._end, number, work)
        with suppress(asyncio.CancelledError):
            await work
        for provider in dict.fromkeys(plan.provider for plan in self._plans):
            self._summarise(provider, [one for one in self._outcomes if one.plan.provider == provider])
        return self._verdict()

    def _end(self, number: signal.Signals, work: asyncio.Task[None]) -> None:
        # The servers in this process raise a signal that they were sent once more when they end.
        if self._told_to_end is None:
            self._told_to_end = number
            _say(f"{number.name}: what the runs have made is removed, which takes a minute at most")
            work.cancel()

    async def _carry_out_all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for plan in self._plans:
                group.create_task(self._carry_out(plan))

    async def _carry_out(self, plan: Plan) -> None:
        async with self._gate:
            outcome = await carry_out(plan)
        if plan.is_unharmed:
            outcome.findings += [f"the workload does not come by: {place}" for place in not_passed(outcome)]
        self._outcomes.append(outcome)
        minutes = (time.perf_counter() - self._began) / 60
        figures = f"[{outcome.deaths + outcome.victims} kills, {outcome.seconds:.1f} s; {minutes:.1f} min in all]"
        number = f"{len(self._outcomes)}/{len(self._plans)}"
        _say(f"{number} {'FOUND' if outcome.findings else 'ok'} {plan.text} {figures}")
        for finding in outcome.findings:
            _say(f"    {finding}")

    def _summarise(self, provider: str, outcomes: list[Outcome]) -> None:
        killed = Counter(name for one in outcomes for name in one.reached)
        there, deaths = places(provider), sum(one.deaths for one in outcomes)
        _say(
            f"{len(outcomes)} runs ({provider}), {deaths} kills: at {len(killed)} of {len(there)} places, "
            f"{deaths - killed.total()} times at a moment, and {sum(one.victims for one in outcomes)} other processes"
        )
        left = [f"{point.name}, {side}" for number, point, side in there if not killed[pass_name(number, side)]]
        if left and len(outcomes) > len(there) // 2:
            _say(f"not killed at: {'; '.join(left)}")

    def _verdict(self) -> int:
        bad = [one for one in self._outcomes if one.findings]
        for one in bad:
            _say(f"FOUND {one.plan.text}: {'; '.join(one.findings)[:400]}\n    to repeat it: {_again(one.plan)}")
        how_long = f"{len(self._outcomes)} of {len(self._plans)} runs, {time.perf_counter() - self._began:.0f} s"
        if self._told_to_end is not None:
            _say(f"BROKEN OFF by {self._told_to_end.name}: {len(bad)} runs with findings ({how_long})")
            return 128 + self._told_to_end
        _say(f"FOUND something in {len(bad)} runs ({how_long})" if bad else f"NOTHING FOUND ({how_long})")
        return 1 if bad else 0


def _again(plan: Plan) -> str:
    what = "--unharmed" if plan.is_unharmed else f"--seed {plan.seed}"
    return f"python -m tests.chaos --provider {plan.provider} {what}"


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def plans_of(options: argparse.Namespace) -> list[Plan]:
    """What is asked for; without one by its seed first, for each provider, the run in which nothing is killed.

    A place that the workload does not come by would prove nothing.
    """
    if options.unharmed:
        return [unharmed(options.provider)]
    if options.seed is not None:
        return [plan_of(options.seed, options.provider)]
    plans = []
    for provider, runs in (("local", options.runs), ("docker", options.docker_runs)):
        if runs:
            plans.append(unharmed(provider))
            plans += [plan_of(seed, provider) for seed in range(options.start, options.start + runs)]
    return plans


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--runs", type=int, default=500, help="how many with local sandboxes (default: 500)")
    parser.add_argument("--docker-runs", type=int, default=0, help="how many with containers (default: 0)")
    parser.add_argument("--start", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--unharmed", action="store_true", help="only the one in which nothing is killed")
    parser.add_argument("--provider", choices=("local", "docker"), default="local", help="for one (default: local)")
    parser.add_argument("--together", type=int, default=3, help="how many at the same time (default: 3)")
    chosen = parser.parse_args()

    async def main() -> int:
        return await Driver(plans_of(chosen), chosen.together).run()

    sys.exit(asyncio.run(main()))
