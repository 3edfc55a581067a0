"""What the server counts: troubles by their code, a line in the log for each that is not repeated at once."""

from __future__ import annotations

import logging

import pytest

from agent_core.troubles import Trouble, coded
from server.metrics import LOG_SECONDS, ServerMetrics


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_a_trouble_has_one_line_and_is_counted_each_time(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    metrics = ServerMetrics(now=clock)
    for _ in range(800):
        metrics.trouble(Trouble.DISK_FULL, "The disk\nis full.", "c1")
    metrics.trouble(Trouble.DISK_FULL, "The disk is full.", "c2")
    assert said(caplog) == [
        "conversation c1: The disk is full.",
        "conversation c2: The disk is full.",
    ]
    assert metrics.troubles(Trouble.DISK_FULL) == 801
    clock.now += LOG_SECONDS
    metrics.trouble(Trouble.DISK_FULL, "The disk is full.", "c1")
    again = "conversation c1: The disk is full. (and 799 more times since it was last said)"
    assert said(caplog)[-1] == again


def test_what_is_of_no_conversation_says_none(caplog: pytest.LogCaptureFixture) -> None:
    ServerMetrics().trouble(Trouble.OTHER, "The engine does not answer.")
    assert said(caplog) == ["The engine does not answer."]


def test_each_line_that_tells_of_trouble_is_counted_once_whoever_writes_it() -> None:
    metrics, log = ServerMetrics(), logging.getLogger("agent_core.x")
    log.setLevel(logging.INFO)
    with metrics.counting_lines():
        log.info("three are gone", extra=coded(Trouble.LEFTOVERS_REMOVED, times=3))
        log.warning("a hook failed", extra=coded(Trouble.HOOK_FAILED, "c1"))
        log.error("something else", extra={"code": "of somebody else"})
        log.info("all is well")
        metrics.trouble(Trouble.WAITING, "waits", "c1")
        try:
            raise KeyError("key")
        except KeyError:
            log.exception("what nobody thought of")
            log.exception("a task failed", extra=coded(Trouble.TASK_RESTARTED))
    log.warning("afterwards")
    found = {code: metrics.troubles(code) for code in Trouble if metrics.troubles(code)}
    assert found == {
        Trouble.LEFTOVERS_REMOVED: 3,
        Trouble.HOOK_FAILED: 1,
        Trouble.OTHER: 1,
        Trouble.WAITING: 1,
        Trouble.UNEXPECTED: 1,
        Trouble.TASK_RESTARTED: 1,
    }


def test_prometheus_reads_it() -> None:
    metrics = ServerMetrics()
    metrics.count(Trouble.DISK_FULL)
    metrics.gauge("drydock_waiting", "Runs that wait for their turn", lambda: 3)
    metrics.gauge("drydock_waiting", "Runs that wait for their turn", lambda: 4)
    lines = metrics.render().decode().splitlines()
    assert 'drydock_troubles_total{code="disk_full"} 1.0' in lines
    assert 'drydock_troubles_total{code="unexpected_error"} 0.0' in lines, "else an alert misses the first"
    assert "# TYPE drydock_troubles_total counter" in lines
    assert [line for line in lines if line.startswith("drydock_waiting")] == ["drydock_waiting 4.0"]
