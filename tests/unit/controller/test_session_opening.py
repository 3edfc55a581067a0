"""A session that cannot be opened leaves nothing behind."""

from __future__ import annotations

import pytest

from agent_core.errors import EventStoreError
from agent_core.events.stream import EventStream
from agent_core.runtime.channel.connection import SandboxConnection
from tests.unit.controller.stage import Stage


async def test_a_session_that_cannot_be_opened_closes_its_log_and_lets_go_of_its_sandbox(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage, streams, released = Stage(), [], []
    opened, let_go = EventStream.open, SandboxConnection.close

    async def open_stream(*args: object) -> EventStream:
        stream = await opened(*args)  # type: ignore[arg-type]
        streams.append(stream)
        return stream

    async def close(connection: SandboxConnection) -> None:
        released.append(connection)
        await let_go(connection)

    monkeypatch.setattr(EventStream, "open", open_stream)
    monkeypatch.setattr(SandboxConnection, "close", close)
    stage.store.failures = 1
    with pytest.raises(EventStoreError, match="the disk is full"):
        await stage.begin()
    assert [stream.closed for stream in streams] == [True]
    assert len(released) == 1
    await stage.begin()
    assert stage.session.is_ready
    async with stage.session:
        assert [stream.closed for stream in streams] == [True, False]
    assert [stream.closed for stream in streams] == [True, True]
    await stage.end()
