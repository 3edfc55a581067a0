from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.figures import Figure
from bench.rounds import best_of, measured


class Rounds:
    """Gives the next values each time it is asked: milliseconds, what explains them, and a rate."""

    def __init__(self, *values: tuple[float, float, float]) -> None:
        self._values: Iterator[tuple[float, float, float]] = iter(values)
        self.asked = 0

    async def __call__(self) -> list[Figure]:
        self.asked += 1
        step, of_it, rate = next(self._values)
        return [
            Figure("step", step, "ms", 4, note="p50"),
            Figure("  of it", of_it, "ms"),
            Figure("rate", rate, "steps/s", 100, at_least=True),
        ]


async def test_what_keeps_its_budgets_is_measured_once() -> None:
    rounds = Rounds((3.0, 1.0, 120))
    figures = await measured(rounds)
    assert rounds.asked == 1
    assert [figure.note for figure in figures] == ["p50", "", ""]


async def test_what_misses_a_budget_is_measured_again_until_a_round_has_kept_it() -> None:
    rounds = Rounds((5.0, 2.5, 120), (3.5, 1.5, 90), (1.0, 1.0, 200))
    step, of_it, rate = await measured(rounds)
    assert rounds.asked == 2
    assert (step.value, of_it.value, rate.value) == (3.5, 1.5, 120)
    assert step.note == "best of 2 rounds: 5 ms, 3.5 ms; p50"
    assert rate.note == "best of 2 rounds: 120 steps/s, 90 steps/s"


async def test_a_budget_that_no_round_keeps_stays_missed() -> None:
    rounds = Rounds((6.0, 1.0, 50), (5.0, 2.0, 40), (7.0, 3.0, 60))
    step, of_it, rate = await measured(rounds)
    assert rounds.asked == 3
    assert (step.met, of_it.value, rate.value, rate.met) == (False, 2.0, 60, False)


def test_rounds_with_other_figures_are_not_mixed() -> None:
    with pytest.raises(ValueError, match="shorter"):
        best_of([[Figure("a", 1, "ms", 2), Figure("b", 1, "ms", 2)], [Figure("a", 1, "ms", 2)]])
