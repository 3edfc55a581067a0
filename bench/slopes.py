"""Whether something grows: a straight line through samples, with how sure that is."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
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


def slope(samples: Sequence[tuple[float, float]], *, block_seconds: float) -> Slope:
    """The line of least squares through the means of blocks of so many seconds; of each sample its time and value.

    Samples that follow each other closely resemble each other: taken one by one they would seem to make the line far
    surer than it is. The means of blocks that are longer than what makes them alike do not.

    Raises:
        ValueError: there are fewer than three blocks, which show no trend.
    """
    blocks: dict[int, list[tuple[float, float]]] = {}
    for at, value in samples:
        blocks.setdefault(int((at - samples[0][0]) / block_seconds), []).append((at, value))
    times = [statistics.fmean(at for at, _ in block) for block in blocks.values()]
    values = [statistics.fmean(value for _, value in block) for block in blocks.values()]
    freedom = len(blocks) - 2
    if freedom < 1:
        raise ValueError(f"{len(samples)} samples are {len(blocks)} blocks of {block_seconds:g} s; three are needed")
    line = statistics.linear_regression(times, values)
    rest = sum((value - line.intercept - line.slope * at) ** 2 for at, value in zip(times, values, strict=True))
    middle = statistics.fmean(times)
    spread = sum((at - middle) ** 2 for at in times)
    margin = _student(freedom) * sqrt(rest / freedom / spread)
    return Slope(line.slope * HOUR, margin * HOUR, statistics.fmean(values))


def _student(freedom: int) -> float:
    """The quantile of Student's t for a two-sided interval (Fisher's expansion: from four degrees on within 2 %)."""
    z = statistics.NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    if freedom < len(_FEW):
        return _FEW[freedom]
    first = (z**3 + z) / (4 * freedom)
    second = (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    return z + first + second


_FEW: Final = (float("inf"), 12.706, 4.303, 3.182)
"""The quantiles for fewer degrees of freedom than the expansion is good for."""
