"""The runner's side of the browser: requests, and what is told where there is none. The rest has a suite of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.contract.runner.client import Client, Runner, processes_with, until
from tests.contract.runner.conftest import StartRunner

LOOK = [{"name": "look"}]


def test_without_chromium_the_answer_says_how_to_get_one(start: StartRunner) -> None:
    client = start(env={"DRYDOCK_CHROMIUM": "/nowhere/chromium"})
    for _ in range(2):
        result = client.call("browser.run", calls=LOOK).result
        assert result["status"] == "unavailable"
        assert "There is no browser in this sandbox: Chromium was not found." in result["error"]
        assert "drydock/sandbox:browser" in result["error"]
        assert "apt-get install chromium" in result["error"]


def test_without_the_library_the_answer_says_so(start: StartRunner) -> None:
    client = start(python="/usr/bin/python3", env={"DRYDOCK_BROWSER_LIBRARY": "/nowhere"})
    result = client.call("browser.run", calls=LOOK).result
    assert result["status"] == "unavailable"
    assert "the library that drives it cannot be loaded" in result["error"]
    assert "No module named 'playwright'" in result["error"]


def test_a_chromium_that_cannot_start_is_told_in_bounded_time(start: StartRunner) -> None:
    client = start(env={"DRYDOCK_CHROMIUM": "/bin/false"})
    result = client.call("browser.run", calls=LOOK, start_seconds=10).result
    assert result["status"] == "unavailable"
    assert "Chromium did not start" in result["error"]


def test_a_request_can_be_cancelled_while_the_browser_starts(start: StartRunner) -> None:
    client = start(env={"DRYDOCK_CHROMIUM": "/bin/false"})
    first = client.send("browser.run", calls=LOOK)
    second = client.send("browser.run", calls=LOOK)
    assert client.call("cancel", id=second).result == {"cancelled": True}
    assert client.call("cancel", id=first).result == {"cancelled": True}
    assert client.wait(second).result["status"] == "interrupted"
    assert client.wait(first).result["status"] in {"interrupted", "unavailable"}


def test_a_repeated_request_is_answered_from_the_journal(start: StartRunner) -> None:
    client = start(env={"DRYDOCK_CHROMIUM": "/nowhere/chromium"})
    first = client.call("browser.run", key="c:1", calls=LOOK).result
    assert client.call("browser.run", key="c:1", calls=[{"name": "other"}]).result == first


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "calls must be a list"),
        ({"calls": []}, "calls must be a list of 1 to 100"),
        ({"calls": [{"args": {}}]}, "calls must be a list"),
        ({"calls": [{"name": "look", "args": 3}]}, "calls must be a list"),
        ({"calls": LOOK, "look": {"tree": 1}}, "look must be an object of true and false"),
        ({"calls": LOOK, "timeout": -1}, "timeout must be a number of seconds"),
        ({"calls": LOOK, "allowed_domains": "a.b"}, "allowed_domains must be a list of strings"),
    ],
)
def test_what_is_wrong_with_a_request_is_told(client: Client, given: dict[str, Any], said: str) -> None:
    error = client.call("browser.run", **given).error
    assert error["code"] == "bad_request"
    assert said in error["message"]


def test_the_browsers_program_ends_with_the_runner(directory: Path) -> None:
    runner = Runner(directory, env={"DRYDOCK_CHROMIUM": "/bin/cat"})  # starts, and says nothing
    workspace = str(runner.workspace)
    try:
        runner.connect().send("browser.run", calls=LOOK)
        until(lambda: bool(processes_with(f"browser  {workspace}")), "the program runs")
    finally:
        runner.close()
    until(lambda: not processes_with(f"browser  {workspace}"), "the program has ended")


@pytest.mark.browser
def test_the_browsers_program_ends_when_the_runner_is_killed(runner: Runner) -> None:
    runner.connect().send("browser.run", calls=LOOK)
    until(lambda: bool(processes_with(f"browser  {runner.workspace}")), "the program runs")
    runner.process.kill()
    runner.process.wait(60)
    until(lambda: not processes_with(f"browser  {runner.workspace}"), "the program has ended")
