"""Whether something grows: a straight line through samples, with how sure that is."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import inf, sqrt
from typing import Final

CONFIDENCE: Final = 0.95
HOUR: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Slope:
    """Growth per hour, give or take `margin` with the confidence `CONFIDENCE`, around the mean of what was sampled."""

    per_hour: float
    margin: float
    mean: float

    def exceeds(self, bound: float) -> bool:
        """Whether it grows faster than the bound, and certainly grows: a line through noise alone does not count."""
        return self.per_hour > bound and self.per_hour - self.margin > 0


def slope(
    samples: Sequence[tuple[float, float]], *, block_seconds: float, beside: Sequence[Sequence[float]] = ()
) -> Slope:
    """The line through the means of blocks of so many seconds; of each sample its time and value.

    It is as steep as the median of all lines through two of them (Theil and Sen), with the interval that follows from
    Kendall's rank statistic: a process that grows does so all along or again and again, and one step of an allocator,
    or of a pool, which least squares would take for growth where it comes early or late, is none. Samples that follow
    each other closely resemble each other: taken one by one they would seem to make the line far surer than it is. The
    means of blocks that are longer than what makes them alike do not. `beside` has what else the value follows, each
    with a number for every sample: what these explain of it, in a straight line, does not count.

    Raises:
        ValueError: there are too few blocks, which show no trend.
    """
    starts = [int((at - samples[0][0]) / block_seconds) for at, _ in samples]
    times = _means(starts, [at for at, _ in samples])
    values = _means(starts, [value for _, value in samples])
    freedom = len(times) - 2 - len(beside)
    if freedom < 1:
        needed = 3 + len(beside)
        raise ValueError(f"{len(samples)} samples are {len(times)} blocks of {block_seconds:g} s; {needed} are needed")
    # Of all, what is left when the straight lines through what they follow are taken away (Frisch, Waugh and Lovell).
    explained: list[list[float]] = []
    for one in beside:
        explained.append(_without(explained, _means(starts, one)))
    moments, rests = _without(explained, times), _without(explained, values)
    steepness = sorted(
        (rest - other) / (moment - earlier)
        for (earlier, other), (moment, rest) in combinations(zip(moments, rests, strict=True), 2)
        if moment != earlier
    )
    low, high = _interval(steepness, freedom + 2)
    return Slope(statistics.median(steepness) * HOUR, (high - low) / 2 * HOUR, statistics.fmean(values))


def _means(blocks: Sequence[int], values: Sequence[float]) -> list[float]:
    """The mean of each block's values, in the order of the blocks."""
    found: dict[int, list[float]] = {}
    for block, value in zip(blocks, values, strict=True):
        found.setdefault(block, []).append(value)
    return [statistics.fmean(some) for some in found.values()]


def _without(explained: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    """What is left of the values without their mean and without what follows these, of which none follows another."""
    mean = statistics.fmean(values)
    left = [value - mean for value in values]
    for one in explained:
        if (length := sum(number**2 for number in one)) > 0:
            share = sum(number * rest for number, rest in zip(one, left, strict=True)) / length
            left = [rest - share * number for number, rest in zip(one, left, strict=True)]
    return left


def _interval(sorted_slopes: Sequence[float], points: int) -> tuple[float, float]:
    """Between which two of the slopes through pairs of so many points the true one lies, with `CONFIDENCE`."""
    quantile = statistics.NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    inside = quantile * sqrt(points * (points - 1) * (2 * points + 5) / 18)
    outside = int((len(sorted_slopes) - inside) / 2)
    if outside < 1:
        return -inf, inf
    return sorted_slopes[outside - 1], sorted_slopes[-outside]
