"""The bench itself: a quick run on real parts gives a figure for every budget, and nothing stays behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
RUN_SECONDS = 600.0

pytestmark = pytest.mark.docker


async def start(tmp_path: Path, *arguments: str) -> asyncio.subprocess.Process:
    (tmp_path / "tmp").mkdir()
    return await asyncio.create_subprocess_exec(
        "env",
        "--default-signal=INT",  # which is ignored by whatever a shell has begun in the background
        sys.executable,
        "-m",
        "bench",
        *arguments,
        "--quick",
        "--output",
        str(tmp_path / "results"),
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def output(process: asyncio.subprocess.Process) -> str:
    async with asyncio.timeout(RUN_SECONDS):
        printed, errors = await process.communicate()
    return printed.decode() + errors.decode()


def started_here(folder: Path) -> list[str]:
    """The processes whose command line names our folder: the servers, and whatever they started there."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue  # it has just ended
        if str(folder) in command and "pytest" not in command:
            found.append(command)
    return found


async def instance_objects(instances: list[str]) -> str:
    found = ""
    for instance in instances:
        for kind in (("ps", "-aq"), ("volume", "ls", "-q"), ("network", "ls", "-q")):
            process = await asyncio.create_subprocess_exec(
                "docker", *kind, "--filter", f"label=drydock.instance={instance}", stdout=asyncio.subprocess.PIPE
            )
            found += (await process.communicate())[0].decode()
            assert process.returncode == 0
    return found


@pytest.mark.timeout(RUN_SECONDS)
async def test_a_quick_run_measures_every_budget_and_leaves_nothing_behind(tmp_path: Path) -> None:
    process = await start(tmp_path)
    printed = await output(process)
    assert process.returncode == 0, printed
    assert "| Budget" in printed
    (file,) = (tmp_path / "results").iterdir()
    result = json.loads(file.read_bytes())
    assert result["sandbox"] == "docker"
    assert result["failed"] == []
    budgeted = {name for name, figures in result["figures"].items() for one in figures if one["budget"] is not None}
    assert budgeted == {
        *("append", "view", "steps", "crowd", "first", "start", "memory", "reopen", "listing", "stop"),
        *("kernel", "editing", "files", "terminal", "clients"),
    }
    assert result["figures"].keys() - budgeted == {"databases", "backup", "cluster", "agents", "connected"}
    assert all(one["value"] >= 0 for figures in result["figures"].values() for one in figures)
    assert list((tmp_path / "tmp").iterdir()) == []
    assert started_here(tmp_path) == []


@pytest.mark.timeout(RUN_SECONDS)
async def test_a_run_that_is_interrupted_leaves_nothing_behind(tmp_path: Path) -> None:
    # Again and again, so that it is never over first: on a busy machine Docker takes long to say what it has.
    process = await start(tmp_path, *("first", "stop", "terminal") * 20)
    instances: list[str] = []
    async with asyncio.timeout(300):
        while not instances or not await instance_objects(instances):
            instances = [file.read_text().strip() for file in (tmp_path / "tmp").glob("*/*/instance-id")]
            await asyncio.sleep(0.05)
    process.send_signal(signal.SIGINT)
    printed = await output(process)
    assert process.returncode == 130, printed
    assert list((tmp_path / "tmp").iterdir()) == []
    assert started_here(tmp_path) == []
    assert await instance_objects(instances) == ""


async def test_an_unknown_name_is_answered_with_those_that_there_are(tmp_path: Path) -> None:
    process = await start(tmp_path, "speed")
    printed = await output(process)
    assert process.returncode == 2
    assert "there is no speed; there are append, databases, backup, view" in printed
