"""What a measurement found, beside what was budgeted for it, and the table of both."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value. `budget` is its bound, an upper one unless `at_least`; None where there is none."""

    name: str
    value: float
    unit: str
    budget: float | None = None
    at_least: bool = False
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the budget is kept; None without one."""
        if self.budget is None:
            return None
        return self.value >= self.budget if self.at_least else self.value <= self.budget

    def data(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "met": self.met}


def p50(values: Sequence[float]) -> float:
    """The median."""
    return statistics.median(values)


def percentile(values: Sequence[float], percent: int) -> float:
    """The smallest value that so many percent of all are not above."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-len(ordered) * percent // 100) - 1))]


def table(figures: Sequence[Figure]) -> str:
    """The figures in columns, for a terminal (and for Markdown)."""
    rows = [("What", "Budget", "Figure", "Met", "Note")]
    rows.extend((one.name, _budget(one), text(one.value, one.unit), _met(one), one.note) for one in figures)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def _budget(figure: Figure) -> str:
    if figure.budget is None:
        return ""
    return f"{'≥' if figure.at_least else '≤'} {text(figure.budget, figure.unit)}"


def _met(figure: Figure) -> str:
    return {True: "yes", False: "NO", None: ""}[figure.met]


def text(value: float, unit: str) -> str:
    """A value as people write it."""
    if value >= 1000:
        return f"{value:,.0f} {unit}"
    return f"{value:.3g} {unit}" if value < 100 else f"{value:.0f} {unit}"
