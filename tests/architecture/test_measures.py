"""What `GET /metrics` shows has one list, with the meaning of each name where an operator looks it up."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from server.cli.metrics_reference import render
from server.measures import MEASURES, MetricInfo

ROOT = Path(__file__).parents[2]


def test_the_page_has_the_table() -> None:
    page = (ROOT / "docs" / "operations.md").read_text("utf-8")
    assert render() in page, "python -m server.cli.metrics_reference prints it"


@pytest.mark.parametrize(("name", "measure"), MEASURES.items(), ids=MEASURES)
def test_names_are_as_prometheus_wants_them(name: str, measure: MetricInfo) -> None:
    assert re.fullmatch(r"(drydock|process)(_[a-z]+)+", name)
    assert name.endswith("_total") == (measure.kind == "counter")
    assert bool(measure.bounds) == (measure.kind == "histogram")
    assert list(measure.bounds) == sorted(set(measure.bounds))
    assert not {"conversation", "user", "id"} & set(measure.labels), "there is no bound on them"


def test_each_is_measured() -> None:
    """By its name, somewhere."""
    text = "".join(path.read_text("utf-8") for path in (ROOT / "server").rglob("*.py") if path.name != "measures.py")
    assert not [name for name in MEASURES if f'"{name}"' not in text and name != "drydock_troubles_total"]
