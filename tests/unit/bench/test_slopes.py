"""Whether something grows is told from its noise."""

from __future__ import annotations

import random

import pytest

from bench.slopes import slope


def samples(per_hour: float, *, noise: float, seconds: int = 1500, seed: int = 1) -> list[tuple[float, float]]:
    """One every five seconds, each much like the one before it, as those of a process are."""
    rng, drift, found = random.Random(seed), 0.0, []
    for at in range(0, seconds, 5):
        drift = 0.8 * drift + rng.gauss(0, noise)
        found.append((float(at), 300 + per_hour * at / 3600 + drift))
    return found


def test_a_straight_line_is_found_as_it_is() -> None:
    line = slope(samples(36, noise=0), block_seconds=60)
    assert line.per_hour == pytest.approx(36)
    assert line.margin == pytest.approx(0, abs=1e-6)
    assert line.exceeds(30)
    assert not line.exceeds(40)


def test_growth_in_noise_is_found() -> None:
    assert all(slope(samples(40, noise=1, seed=seed), block_seconds=60).exceeds(20) for seed in range(20))


def test_noise_alone_seldom_passes_for_growth() -> None:
    lines = [slope(samples(0, noise=1, seed=seed), block_seconds=60) for seed in range(200)]
    assert sum(abs(line.per_hour) > line.margin for line in lines) <= 20  # ten of them, at 95 %


def test_one_step_is_no_growth_and_one_after_another_is() -> None:
    quiet = samples(4, noise=0.05, seconds=900)
    step = [(at, value + 3 * (at > 720)) for at, value in quiet]
    stairs = [(at, value + 3 * (at // 240)) for at, value in quiet]
    assert not slope(step, block_seconds=36).exceeds(16)
    assert slope(stairs, block_seconds=36).exceeds(16)


def test_three_blocks_are_needed() -> None:
    with pytest.raises(ValueError, match="2 blocks of 60 s; 3 are needed"):
        slope(samples(0, noise=0, seconds=120), block_seconds=60)


def test_what_follows_the_load_is_no_growth_and_what_grows_beside_it_is() -> None:
    rng = random.Random(1)
    load = [100 + at / 60 + rng.gauss(0, 3) for at in range(0, 900, 5)]  # more and more is at work
    times = range(0, 900, 5)
    plain = [(float(at), 20 * busy + rng.gauss(0, 5)) for at, busy in zip(times, load, strict=True)]
    leaks = [(at, value + at / 30) for at, value in plain]
    assert slope(plain, block_seconds=36).exceeds(60)
    assert not slope(plain, block_seconds=36, beside=[load]).exceeds(60)
    assert slope(leaks, block_seconds=36, beside=[load]).exceeds(60)
    assert not slope(plain, block_seconds=36, beside=[load, [7.0] * len(load)]).exceeds(60)
