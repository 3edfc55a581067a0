"""Writes the table of metrics in `docs/operations.md`: ``python -m server.cli.metrics_reference`` prints it."""

from __future__ import annotations

import sys

from server.measures import MEASURES


def render() -> str:
    """The table, in Markdown."""
    lines = ["| Name | Type | Unit | Labels | Meaning |", "|---|---|---|---|---|"]
    for name, measure in MEASURES.items():
        labels = ", ".join(f"`{label}`" for label in measure.labels) or "–"
        lines.append(f"| `{name}` | {measure.kind} | {_unit(name)} | {labels} | {measure.meaning} |")
    return "\n".join(lines) + "\n"


def _unit(name: str) -> str:
    last = name.removesuffix("_total").rpartition("_")[2]
    return last if last in ("seconds", "bytes", "dollars", "tokens") else "–"


if __name__ == "__main__":
    sys.stdout.write(render())
