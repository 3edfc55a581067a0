"""What makes a workspace too large for snapshots behind every operation: work, not a busy machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from runtime_images.runner.core.loop import Loop
from runtime_images.runner.core.workers import Workers
from runtime_images.runner.files import snapshots
from runtime_images.runner.files.snapshots import Snapshots


class ATree:
    """Takes a snapshot in its own way."""

    def __init__(self, way: Callable[[], None]) -> None:
        self._way = way

    def take(self, name: str, is_stopped: Callable[[], bool]) -> dict[str, object]:
        self._way()
        return {}


def rest() -> None:
    time.sleep(0.05)


def work() -> None:
    until = time.thread_time() + 0.05
    while time.thread_time() < until:
        pass


@pytest.mark.parametrize(("way", "is_slow"), [(rest, False), (work, True)])
def test_time_that_others_had_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: Callable[[], None], is_slow: bool
) -> None:
    monkeypatch.setattr(snapshots, "QUICK_SECONDS", 0.02)
    loop = Loop()
    try:
        made = Snapshots(loop, Workers(loop), str(tmp_path), str(tmp_path / "state"))
        made._opened = ATree(way)
        made._take("a")
        assert made._is_slow is is_slow
    finally:
        loop.close()
