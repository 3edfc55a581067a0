"""The simulation gives what can be told by hand, where that can be told."""

from __future__ import annotations

import pytest

from bench.simulation import Machines, StepCosts, simulate

STEP = StepCosts(server_ms=4.0, database_ms=1.0, turns=4, sync_ms=0.25)


def test_few_agents_are_as_fast_as_their_models() -> None:
    found = simulate(10, 1.0, STEP, Machines(processes=2, cores=2, database_cores=2))
    assert found.steps_per_second == pytest.approx(10 / (1.0 + STEP.least_ms / 1000), rel=0.03)
    assert found.p50_ms == pytest.approx(STEP.least_ms, rel=0.05)


@pytest.mark.parametrize(
    ("machines", "most"),
    [
        (Machines(processes=1, cores=2, database_cores=2), 250),  # one process: 4 ms of a step are its own
        (Machines(processes=2, cores=2, database_cores=2), 500),
        (Machines(processes=4, cores=2, database_cores=2), 500),  # two cores have no more
        (Machines(processes=4, cores=4, database_cores=1), 1000),
        (Machines(processes=4, cores=2), 400),  # 5 ms of two cores, the database's among them
    ],
)
def test_many_agents_have_what_the_narrowest_place_gives(machines: Machines, most: float) -> None:
    found = simulate(120, 0.06, STEP, machines, seconds=10)
    assert found.steps_per_second == pytest.approx(most, rel=0.02)


def test_who_shares_cores_with_sandboxes_and_models_has_less() -> None:
    machines = Machines(processes=2, cores=2)
    shared = StepCosts(server_ms=4.0, database_ms=1.0, elsewhere_ms=5.0, turns=4)
    assert simulate(120, 0.06, shared, machines, seconds=10).steps_per_second == pytest.approx(200, rel=0.02)


def test_a_step_takes_longer_the_more_wait_for_the_same() -> None:
    machines = Machines(processes=1, cores=2, database_cores=2)
    late = [simulate(agents, 1.0, STEP, machines, seconds=10).p95_ms for agents in (50, 200, 260)]
    assert late == sorted(late)
    assert late[2] > 3 * late[0]
