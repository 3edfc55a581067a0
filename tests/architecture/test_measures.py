"""What `GET /metrics` shows has one list, with the meaning of each name where an operator looks it up."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from subprocess import run

import pytest
import yaml

from agent_core.troubles import Trouble
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


def test_each_alert_has_its_page() -> None:
    """Its meaning and what to do, under its own name, where its annotation says."""
    page = (ROOT / "docs" / "operations.md").read_text("utf-8")
    explained = re.findall(r"^### (Drydock\w+)$", page, re.MULTILINE)
    (group,) = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text("utf-8"))["groups"]
    assert [rule["alert"] for rule in group["rules"]] == explained
    for rule in group["rules"]:
        assert rule["annotations"]["runbook"] == f"docs/operations.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in ("critical", "warning")


def test_the_alerts_ask_for_codes_that_there_are() -> None:
    rules = (ROOT / "deploy" / "prometheus" / "alerts.yml").read_text("utf-8")
    codes = "|".join(re.findall(r'code=~?"([^"]*)"', rules)).split("|")
    assert len(codes) > 4
    assert not set(codes) - set(Trouble)


def test_the_dashboard_is_made_from_its_list() -> None:
    made = run([ROOT / "scripts" / "grafana_dashboard.py"], capture_output=True, text=True, check=True).stdout
    stored = (ROOT / "deploy" / "grafana" / "drydock.json").read_text("utf-8")
    assert made == stored, "scripts/grafana_dashboard.py > deploy/grafana/drydock.json"
    panels = json.loads(stored)["panels"]
    assert len({one["id"] for one in panels}) == len(panels)
    places = [(x, y) for one in panels for x, y in _fields(**one["gridPos"])]
    assert len(set(places)) == len(places), "no panel lies upon another"
    assert all(x < 24 for x, _ in places)


def _fields(x: int, y: int, w: int, h: int) -> Iterator[tuple[int, int]]:
    return product(range(x, x + w), range(y, y + h))
