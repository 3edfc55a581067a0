"""Traces when the collector is no good, or the libraries are not there."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import AsyncIterator

import pytest

from agent_core.spans import Span, watched_by
from agent_core.troubles import Trouble
from server.errors import ConfigurationError
from server.metrics import ServerMetrics
from server.traces import CLOSE_SECONDS, Traces
from tests.listening import listening


@pytest.fixture
async def silent(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """A collector that takes requests and answers none."""

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(3600)

    async with listening(hang) as port:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
        yield


@pytest.mark.usefixtures("silent")
async def test_what_waits_for_a_collector_is_bounded_and_so_is_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "40")
    metrics = ServerMetrics()
    async with Traces(metrics) as traces:
        with watched_by(traces):
            for _ in range(100):
                with Span("step", conversation="c1"):
                    pass
        assert metrics.troubles(Trouble.TRACES_LOST) == 60
        began = time.monotonic()
    assert CLOSE_SECONDS <= time.monotonic() - began < 40  # the collector would be given up after 60
    assert metrics.troubles(Trouble.TRACES_LOST) == 61


async def test_a_collector_that_is_not_there_is_told_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    metrics = ServerMetrics()
    async with Traces(metrics) as traces:
        with watched_by(traces), Span("step") as step:
            assert len(step.trace) == 32
    assert metrics.troubles(Trouble.TRACES_LOST) >= 1
    assert "traces are not complete" in caplog.text
    assert not [one for one in caplog.records if one.name.startswith("opentelemetry")]


async def test_a_span_that_is_in_none_begins_no_trace_unless_somebody_asked_for_it(silent: None) -> None:
    async with Traces(ServerMetrics()) as traces:
        with watched_by(traces):
            with Span("sandbox_request", operation="ping") as request:
                assert not request.trace
            with Span("http_request", method="GET", is_traced=False) as probe:
                assert not probe.trace


async def test_without_the_libraries_the_start_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ConfigurationError, match=r"drydock\[otel\]"):
        async with Traces(ServerMetrics()):
            pass
