"""What the server counts: troubles by their code, a line in the log for each that is not repeated at once."""

from __future__ import annotations

import pytest

from server.metrics import LOG_SECONDS, MAX_CODES, ServerMetrics


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
        metrics.trouble("disk_full", "The disk\nis full.", "c1")
    metrics.trouble("disk_full", "The disk is full.", "c2")
    assert said(caplog) == [
        "conversation c1: The disk is full. [disk_full]",
        "conversation c2: The disk is full. [disk_full]",
    ]
    assert metrics.troubles("disk_full") == 801
    clock.now += LOG_SECONDS
    metrics.trouble("disk_full", "The disk is full.", "c1")
    again = "conversation c1: The disk is full. (and 799 more times since it was last said) [disk_full]"
    assert said(caplog)[-1] == again


def test_what_is_of_no_conversation_says_none(caplog: pytest.LogCaptureFixture) -> None:
    ServerMetrics().trouble("engine_hangs", "The engine does not answer.")
    assert said(caplog) == ["The engine does not answer. [engine_hangs]"]


def test_codes_that_others_make_up_are_bounded() -> None:
    metrics = ServerMetrics()
    for number in range(MAX_CODES + 50):
        metrics.count(f"code-{number}")
    assert metrics.troubles("other") == 50
    assert metrics.troubles("code-0") == 1


def test_prometheus_reads_it() -> None:
    metrics = ServerMetrics()
    metrics.count('a "quoted"\ncode')
    metrics.gauge("drydock_waiting", "Runs that wait for their turn", lambda: 3)
    metrics.gauge("drydock_waiting", "Runs that wait for their turn", lambda: 4)
    lines = metrics.render().decode().splitlines()
    assert 'drydock_troubles_total{code="a \\"quoted\\"\\ncode"} 1.0' in lines
    assert "# TYPE drydock_troubles_total counter" in lines
    assert [line for line in lines if line.startswith("drydock_waiting")] == ["drydock_waiting 4.0"]
