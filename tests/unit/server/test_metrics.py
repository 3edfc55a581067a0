"""What the server counts: troubles by their code, a line in the log for each that is not repeated at once."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from contextlib import suppress

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent_core.spans import Span, watched_by
from agent_core.troubles import Trouble, coded
from server.metrics import LOG_SECONDS, MAX_SERIES, OTHERS, ServerMetrics


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
    metrics.gauge("drydock_waiting", lambda: 3)
    metrics.gauge("drydock_waiting", lambda: 4)
    lines = metrics.render().decode().splitlines()
    assert 'drydock_troubles_total{code="disk_full"} 1.0' in lines
    assert 'drydock_troubles_total{code="unexpected_error"} 0.0' in lines, "else an alert misses the first"
    assert "# TYPE drydock_troubles_total counter" in lines
    assert [line for line in lines if line.startswith("drydock_waiting")] == ["drydock_waiting 4.0"]


def parsed(metrics: ServerMetrics) -> dict[tuple[str, ...], float]:
    """Name, labels in their order, and value of all samples, as Prometheus' own library reads them."""
    families = text_string_to_metric_families(metrics.render().decode())
    return {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}


def test_spans_become_histograms_and_what_a_step_costs_leaves_out_the_model() -> None:
    metrics = ServerMetrics()
    with watched_by(metrics), Span("step") as step, Span("model_call", model="m") as call:
        call.facts |= {"attempts": 2, "input_tokens": 100, "output_tokens": 7, "cost": 0.5, "first_token_seconds": 0.3}
        time.sleep(0.02)
    found = parsed(metrics)
    whole, own = found["drydock_step_duration_seconds_sum", "ok"], found["drydock_step_overhead_seconds_sum",]
    assert whole == step.seconds
    assert own == pytest.approx(step.seconds - call.seconds)
    assert whole - own > 0.015
    assert found["drydock_model_call_duration_seconds_bucket", "m", "ok", "1.0"] == 1
    assert found["drydock_model_call_duration_seconds_bucket", "m", "ok", "0.01"] == 0
    assert found["drydock_model_first_token_seconds_sum", "m"] == 0.3
    assert found["drydock_model_attempts_total", "m"] == 2
    assert found["drydock_model_tokens_total", "m", "input"] == 100
    assert found["drydock_model_cost_dollars_total", "m"] == 0.5


def test_what_fails_and_what_is_cancelled_are_told_apart() -> None:
    metrics = ServerMetrics()
    with watched_by(metrics):
        for error in (RuntimeError, asyncio.CancelledError):
            with suppress(error), Span("socket_message"):
                raise error
    found = parsed(metrics)
    name = "drydock_socket_message_duration_seconds_count"
    assert found[name, "error"] == found[name, "cancelled"] == 1
    with Span("socket_message"):  # nobody watches any more
        pass
    assert (name, "ok") not in parsed(metrics)


def test_labels_of_others_are_bounded_in_number_and_length_and_break_no_line() -> None:
    metrics = ServerMetrics()
    metrics.add("drydock_model_attempts_total", 1, 'a "model"\n\\of \ud83d' + "x" * 1_000)
    for number in range(2 * MAX_SERIES):
        metrics.add("drydock_model_attempts_total", 1, f"model-{number}")
    values = {key[1]: value for key, value in parsed(metrics).items() if key[0] == "drydock_model_attempts_total"}
    assert next(iter(values)).startswith('a "model"\n\\of ?xxx')
    assert len(next(iter(values))) == 100
    assert len(values) == MAX_SERIES + 1
    assert sum(values.values()) == 2 * MAX_SERIES + 1
    assert values[OTHERS] == MAX_SERIES + 1


def test_a_gauge_that_cannot_be_read_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    metrics = ServerMetrics()
    metrics.gauge("drydock_disk_free_bytes", lambda: 1 // 0)
    metrics.gauge("drydock_waiting", lambda: 3)
    found = parsed(metrics)
    assert found["drydock_waiting",] == 3
    assert math.isnan(found["drydock_disk_free_bytes",])
    assert said(caplog) == [
        "drydock_disk_free_bytes cannot be read: ZeroDivisionError('integer division or modulo by zero')"
    ]


def test_only_what_has_a_meaning_is_shown() -> None:
    with pytest.raises(KeyError, match="none of the measures"):
        ServerMetrics().gauge("drydock_moon_phase", lambda: 1)
