"""What tests leave in the Docker engine, found at the end of a run and told with the tests that ran when it was made.

An engine has room for some thirty networks: when each test leaves one, all others fail in the end.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import closing, suppress
from datetime import datetime
from typing import NamedTuple

import pytest

_WITHOUT_ENGINE = ("tests/unit/", "tests/architecture/", "tests/migrations/")
_SLACK_SECONDS = 1.0  # the engine tells some times in whole seconds
_MOST_NETWORKS = 5  # a process that a test kills at a bad moment may leave one to whoever sweeps next


class Ran(NamedTuple):
    """When a part of a test (its fixtures, itself) was run."""

    test: str
    start: float
    stop: float


class Leftovers:
    """A plugin of pytest that tells of objects left in the engine.

    Where nobody else works in that (``CI``), a run which leaves more than a few networks fails.
    """

    def __init__(self) -> None:
        self._began = time.time()
        self._ran: list[Ran] = []
        self._told: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.nodeid.startswith(_WITHOUT_ENGINE):
            self._ran.append(Ran(report.nodeid, report.start, report.stop))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not self._ran:
            return
        for name, made in _objects():
            if made > self._began - _SLACK_SECONDS:
                tests = {ran.test for ran in self._ran if ran.start - _SLACK_SECONDS < made < ran.stop + _SLACK_SECONDS}
                self._told.append(f"{name}, made during {' or '.join(sorted(tests)) or 'no test of this run'}")
        networks = sum(line.startswith("network ") for line in self._told)
        if networks > _MOST_NETWORKS and "CI" in os.environ and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._told:
            terminalreporter.section("left in the Docker engine (unless others use it, too)", red=True)
            for line in self._told:
                terminalreporter.line(line)


def _objects() -> list[tuple[str, float]]:
    """The names of all objects of sandboxes, with the time of their making; none where no engine answers."""
    # Only those who have asked for tests that use an engine pay for these imports.
    from docker.errors import DockerException

    from agent_core.runtime.docker.engine import connect
    from agent_core.runtime.sandbox import LABEL_ROLE

    ours = {"label": LABEL_ROLE}
    found: list[tuple[str, float]] = []
    with suppress(OSError, DockerException):
        engine, _ = connect(None, 20)
        with closing(engine):
            for container in engine.containers(all=True, filters=ours):
                name = f"container {container['Names'][0]} {json.dumps(container['Labels'])}"
                found.append((name, container["Created"]))
            for network in engine.networks(filters=ours):
                name = f"network {network['Name']} {json.dumps(network['Labels'])}"
                found.append((name, _time(network["Created"])))
            for volume in engine.volumes(filters=ours)["Volumes"] or ():
                name = f"volume {volume['Name']} {json.dumps(volume['Labels'])}"
                found.append((name, _time(volume["CreatedAt"])))
    return found


def _time(written: str) -> float:
    """Seconds since 1970 of an engine's time, which may have nanoseconds."""
    whole, _, rest = written.partition(".")
    zone = rest.lstrip("0123456789")
    return datetime.fromisoformat(whole + zone).timestamp()
