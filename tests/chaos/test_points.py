"""Twenty of the seeded runs of `make chaos`, and that its points are where they are said to be."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.chaos.points import POINTS, find
from tests.chaos.run import Outcome, carry_out, not_passed, places, plan_of, unharmed

TOGETHER = 3
LOCAL_SEEDS = [(0, 9, 18, 27, 36, 45), (55, 64, 73, 82, 91), (2, 4, 6, 7, 10, 12, 14)]
DOCKER_SEEDS = (8, 9)


def test_every_point_is_a_function_that_there_is() -> None:
    for point in POINTS:
        find(point)
    assert len({point.name for point in POINTS}) == len({point.function for point in POINTS}) == len(POINTS)


def test_a_plan_follows_from_its_seed_and_the_plans_name_every_place() -> None:
    for provider in ("local", "docker"):
        plans = [plan_of(seed, provider) for seed in range(100)]
        assert plans == [plan_of(seed, provider) for seed in range(100)]
        named = {kill.rpartition(":")[0] for plan in plans for kill in plan.kills}
        assert named == {f"{number}:{side}" for number, _, side in places(provider)}


@pytest.mark.bubblewrap
@pytest.mark.timeout(240)
async def test_the_workload_passes_every_point() -> None:
    outcome = await carry_out(unharmed("local"))
    assert outcome.findings == []
    assert not_passed(outcome) == []


async def carried_out(provider: str, seeds: Sequence[int]) -> list[Outcome]:
    gate = asyncio.Semaphore(TOGETHER)

    async def one(seed: int) -> Outcome:
        async with gate:
            return await carry_out(plan_of(seed, provider))

    return await asyncio.gather(*map(one, seeds))


def assert_nothing_was_found(outcomes: list[Outcome]) -> None:
    found = {outcome.plan.text: outcome.findings for outcome in outcomes if outcome.findings}
    assert found == {}, "to repeat one: python -m tests.chaos --seed N --provider local|docker"
    assert sum(outcome.deaths for outcome in outcomes) >= len(outcomes) // 2  # some come too late to kill anything


@pytest.mark.bubblewrap
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seeds", LOCAL_SEEDS, ids=str)
async def test_nothing_is_lost_doubled_or_left_over_when_a_server_is_killed(seeds: Sequence[int]) -> None:
    assert_nothing_was_found(await carried_out("local", seeds))


@pytest.mark.docker
@pytest.mark.timeout(400)
async def test_nor_where_sandboxes_are_containers() -> None:
    assert_nothing_was_found(await carried_out("docker", DOCKER_SEEDS))
