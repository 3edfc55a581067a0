"""The runner's side of the kernel: requests, and what is told where there is none. The rest has a suite of its own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.contract.runner.client import Client, Runner, processes_with, until
from tests.contract.runner.conftest import StartRunner

SYSTEM = {"PATH": "/usr/bin:/bin", "DRYDOCK_KERNEL_LIBRARY": "/nowhere"}


@pytest.fixture
def python_that_waits(directory: Path) -> str:
    """A folder whose python3 starts, and says nothing until its input ends."""
    program = directory / "bin" / "python3"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexec 3>&1 cat > /dev/null\n")
    program.chmod(0o755)
    return f"{program.parent}:{os.environ['PATH']}"


def test_without_the_library_the_answer_says_how_to_get_it(start: StartRunner) -> None:
    client = start(env=SYSTEM)
    for _ in range(2):
        result = client.call("kernel.run", code="1").result
        assert (result["status"], result["output"], result["images"]) == ("unavailable", "", [])
        assert (
            "There is no IPython kernel in this sandbox: jupyter_client cannot be loaded by Python 3."
            in result["notice"]
        )
        assert "drydock/sandbox:base" in result["notice"]
        assert "pip install ipykernel" in result["notice"]


def test_a_program_that_ends_as_it_starts_is_told_with_its_words(start: StartRunner, directory: Path) -> None:
    package = directory / "library" / "zmq"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("import sys; sys.exit('no luck today')")
    result = start(env={"DRYDOCK_KERNEL_LIBRARY": str(package.parent)}).call("kernel.run", code="1").result
    assert result["status"] == "unavailable"
    assert "no luck today" in result["notice"]


def test_requests_can_be_cancelled_while_the_kernel_starts(start: StartRunner, python_that_waits: str) -> None:
    client = start(env={"PATH": python_that_waits})
    first = client.send("kernel.run", code="1")
    second = client.send("kernel.run", code="2")
    for number in (second, first):
        assert client.call("cancel", id=number).result == {"cancelled": True}
        result = client.wait(number).result
        assert (result["status"], result["notice"]) == ("interrupted", "It was stopped by the user before it began.")


def test_too_many_cells_are_refused(start: StartRunner, python_that_waits: str) -> None:
    client = start(env={"PATH": python_that_waits})
    for _ in range(65):
        client.send("kernel.run", code="1")
    assert client.call("kernel.run", code="1").error["code"] == "busy"


def test_the_kernels_program_ends_with_the_runner(directory: Path, python_that_waits: str) -> None:
    runner = Runner(directory, env={"PATH": python_that_waits})
    try:
        runner.connect().send("kernel.run", code="1")
        until(lambda: bool(_children(runner)), "the program runs")
        children = _children(runner)
    finally:
        runner.close()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children), "the program has ended")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "code must be a string (it is missing)"),
        ({"code": 1}, "code must be a string"),
        ({"code": "'\ud800'"}, "code must not hold half characters"),
        ({"code": "1", "timeout": -1}, "timeout must be a number of seconds"),
        ({"code": "1", "env": {"a b": "c"}}, "env holds a name that no variable can have"),
        ({"code": "1", "max_output": 10**9}, "max_output must be a whole number from 0 to 65536"),
        ({"code": "1", "init_code": 2}, "init_code must be a string"),
    ],
)
def test_what_is_wrong_with_a_request_is_told(client: Client, given: dict[str, Any], said: str) -> None:
    error = client.call("kernel.run", **given).error
    assert error["code"] == "bad_request"
    assert said in error["message"]


def _children(runner: Runner) -> list[int]:
    return [pid for pid in processes_with("cat") if f"\nPPid:\t{runner.process.pid}\n" in _status(pid)]


def _status(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return ""
