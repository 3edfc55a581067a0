"""The store of plain files, broken at each call of the file system and killed at each of its lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.storage.faults import Faults, build

ROOT = Path(__file__).parents[3]
PROGRAM = Path(__file__).with_name("breaking_store.py")
MEMORY = Path("/dev/shm")


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder where syncing costs nothing."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield Path(folder)


def broken(how: str, environment: dict[str, str], each: int) -> dict[str, int]:
    """Run the program; `EACH` in the environment says which lines and calls, in place of `each`."""
    given = {"PYTHONPATH": str(ROOT), "EACH": str(each), **os.environ, **environment}
    run = subprocess.run(
        [sys.executable, PROGRAM, how], env=given, capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stderr[-3000:]
    counts: dict[str, int] = json.loads(run.stdout)
    return counts


def test_what_a_failing_call_refuses_is_not_there_and_all_that_was_acknowledged_is(place: Path, tmp_path: Path) -> None:
    faults = Faults(build(tmp_path), place)
    (place / "data").mkdir()
    refused = broken("faults", faults.environment, each=5)
    assert min(refused.values()) > 10, refused


def test_a_program_that_is_killed_at_any_line_loses_nothing_that_was_acknowledged(place: Path) -> None:
    assert broken("kills", {"STORAGE_FAULTS_FOLDER": str(place / "data")}, each=23)["killed"] > 10
