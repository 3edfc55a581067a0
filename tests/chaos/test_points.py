"""Sixteen of the seeded runs of `make chaos`, and that its points are where they are said to be."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.chaos.points import POINTS, find
from tests.chaos.run import Outcome, Plan, carry_out, not_passed, places, plan_of, unharmed

TOGETHER = 4
LOCAL_SEEDS = (2, 4, 10, 23, 29, 36, 37, 41, 63, 70, 71, 78, 79, 104)
DOCKER_SEEDS = (8, 9)


def test_every_point_is_a_function_that_there_is() -> None:
    for point in POINTS:
        find(point)
    assert len({point.name for point in POINTS}) == len({point.function for point in POINTS}) == len(POINTS)


def test_a_plan_follows_from_its_seed_and_the_plans_name_every_place() -> None:
    for provider in ("local", "docker"):
        plans = [plan_of(seed, provider) for seed in range(136)]
        assert plans == [plan_of(seed, provider) for seed in range(136)]
        named = {kill.rpartition(":")[0] for plan in plans for kill in plan.kills if "@" not in kill}
        assert named == {f"{number}:{side}" for number, _, side in places(provider)}


async def carried_out(plans: Sequence[Plan]) -> list[Outcome]:
    gate = asyncio.Semaphore(TOGETHER)

    async def one(plan: Plan) -> Outcome:
        async with gate:
            return await carry_out(plan)

    return await asyncio.gather(*map(one, plans))


def assert_nothing_was_found(outcomes: Sequence[Outcome]) -> None:
    found = {outcome.plan.text: outcome.findings for outcome in outcomes if outcome.findings}
    assert found == {}, "to repeat one: python -m tests.chaos --seed N --provider local|docker"


@pytest.mark.bubblewrap
@pytest.mark.timeout(900)
async def test_nothing_is_lost_doubled_or_left_over_when_a_server_is_killed() -> None:
    """And the workload, when nothing is killed, passes every point."""
    whole, *harmed = await carried_out([unharmed("local"), *(plan_of(seed, "local") for seed in LOCAL_SEEDS)])
    assert_nothing_was_found([whole, *harmed])
    assert not_passed(whole) == []
    # Some come too late to kill anything.
    assert sum(outcome.deaths + outcome.victims for outcome in harmed) >= len(harmed) // 2


@pytest.mark.docker
@pytest.mark.timeout(900)
async def test_nor_where_sandboxes_are_containers() -> None:
    assert_nothing_was_found(await carried_out([plan_of(seed, "docker") for seed in DOCKER_SEEDS]))
