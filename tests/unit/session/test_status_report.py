"""How a session's sandbox is, as its followers are told it."""

from __future__ import annotations

import pytest

from agent_core.events.store import InMemoryEventStore
from agent_core.events.stream import EventStream
from agent_core.events.transient import NETWORK_WARNING, READY, STARTING, WAITING_FOR_ENGINE, StatusNotice
from agent_core.session.status_report import StatusReport


async def test_an_engine_that_is_away_is_told_once_and_is_the_state_until_it_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream = await EventStream.open("c", InMemoryEventStore())
    report = StatusReport(stream, None)
    async with stream.subscribe(transients=True) as events:
        report.progress(NETWORK_WARNING, "as it was")
        for reason in ("gone", "gone", "hangs"):
            report.progress(WAITING_FOR_ENGINE, reason)
        assert (report.status, report.warning) == (WAITING_FOR_ENGINE, "hangs")
        report.progress(STARTING, "")
        assert (report.status, report.warning) == (STARTING, "")
        told = [await anext(events) for _ in range(4)]
        assert [one.message for one in told if isinstance(one, StatusNotice)] == ["as it was", "gone", "hangs", ""]
        assert [getattr(record, "code", None) for record in caplog.records] == ["engine_unavailable"]

        for _ in range(2):  # started anew for a command
            report.changed(WAITING_FOR_ENGINE, "gone again")
        report.changed(READY, "")
        told = [await anext(events) for _ in range(2)]
        assert [one.message for one in told if isinstance(one, StatusNotice)] == ["gone again", ""]
        assert (report.status, report.warning) == (READY, "")
        assert [getattr(record, "code", None) for record in caplog.records] == ["engine_unavailable"] * 2
