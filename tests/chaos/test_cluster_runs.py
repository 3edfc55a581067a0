"""Some of the seeded runs of `make chaos` with three servers behind a proxy, and that a plan follows from its seed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.cluster_plan import cluster_places, cluster_plan_of

ROOT = Path(__file__).parents[2]
LIMIT_SECONDS = 600


def test_the_plans_follow_from_their_seeds_and_name_every_place() -> None:
    plans = [cluster_plan_of(seed) for seed in range(100)]
    assert plans == [cluster_plan_of(seed) for seed in range(100)]
    done = [one for plan in plans for one in plan.disturbances]
    places = {one.detail.rpartition(":")[0] for one in done if one.kind == "kill at a point"}
    assert places == {f"{number}:{side}" for number, side in cluster_places()}
    assert len({one.kind for one in done}) == 9
    assert {one.detail.split()[0] for one in done if one.kind == "cut"} == {"database", "servers", "proxy"}
    assert any(any(plan.clocks) for plan in plans)
    with_redis = [cluster_plan_of(seed, redis=True) for seed in range(100)]
    kinds = {one.kind for plan in with_redis for one in plan.disturbances}
    assert kinds - {one.kind for one in done} == {"stop Redis", "freeze Redis"}


@pytest.mark.postgresql
@pytest.mark.redis
@pytest.mark.proxies
@pytest.mark.networks
@pytest.mark.timeout(LIMIT_SECONDS + 20)
@pytest.mark.parametrize("options", [("--seeds", "3"), ("--seeds", "6", "--redis")], ids=" ".join)
def test_nothing_is_lost_doubled_or_done_twice_whatever_becomes_of_three_servers(options: tuple[str, ...]) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root makes networks")
    command = [sys.executable, "-m", "tests.chaos.cluster", *options]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as runs:
        try:
            told, _ = runs.communicate(timeout=LIMIT_SECONDS)
        finally:
            if runs.poll() is None:
                os.killpg(runs.pid, signal.SIGKILL)
    assert runs.returncode == 0, told
