"""The soak's driver: a few seconds of it on real parts count everything and leave nothing."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from bench.load import Load
from bench.slopes import Slope
from bench.soak import BOUNDS, Outcome, Plan

ROOT = Path(__file__).parents[3]
RUN_SECONDS = 600.0
NOTHING = Load(0.0, 0, 0, 0, 0.0, 0.0, {}, {})


@pytest.mark.timeout(RUN_SECONDS)
async def test_a_short_run_shows_every_slope_and_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.soak", "--minutes", "0.15", "--command-seconds", "0.2", "--sandbox", "local"),
        *("--conversations", "4", "--at-work", "2", "--clients", "4", "--steps", "2", "--output", str(tmp_path)),
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed = (await process.communicate())[0].decode()
    assert process.returncode == 0, printed
    assert "Too short to say what grows" in printed
    (file,) = (name for name in os.listdir(tmp_path) if name.startswith("soak-"))
    result = json.loads((tmp_path / file).read_bytes())
    assert result["slopes"].keys() == BOUNDS.keys()
    assert result["done"]["tasks"] >= 1, printed
    assert result["failed"] == {}
    assert max(look["load"]["processes"] for look in result["looks"]) > 0
    assert (result["left"]["processes"], result["left"]["gauges"]["drydock_connections"]) == (0, 0)
    assert os.listdir(tmp_path / "tmp") == []


def test_what_grows_faster_than_its_bound_is_named() -> None:
    still, growing = Slope(1.0, 0.5, 300), Slope(BOUNDS["drydock_tasks"] * 2, 0.5, 300)
    lines = {**dict.fromkeys(BOUNDS, still), "drydock_tasks": growing}

    def grown(minutes: float) -> list[str]:
        return Outcome(Plan(minutes, 1, 1, 1), lines, [], NOTHING, {}, {}).grown

    assert grown(30) == ["drydock_tasks"]
    assert grown(1) == []
