"""A session that cannot be opened leaves nothing behind."""

from __future__ import annotations

import pytest

from agent_core.errors import EventStoreError, SandboxError
from agent_core.events.control import AgentState, AgentStateChanged
from agent_core.events.stream import EventStream
from agent_core.runtime.channel.connection import SandboxConnection
from tests.unit.controller.stage import Stage
from tests.unit.controller.test_confirmation_flow import staged


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


async def test_a_session_starts_once() -> None:
    async with staged() as stage:
        with pytest.raises(RuntimeError, match="the session of conversation c was started already"):
            await stage.session.start()


async def test_a_start_that_fails_is_told_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    async def start(_connection: SandboxConnection, _progress: object) -> None:
        raise SandboxError("The image is not there.\nPull it.", code="no_image")

    monkeypatch.setattr(SandboxConnection, "start", start)
    stage = Stage()
    with pytest.raises(SandboxError):
        await stage.begin()
    *_, last = await stage.log()
    assert isinstance(last, AgentStateChanged)
    assert (last.agent_state, last.detail) == (AgentState.ERROR, "The image is not there. Pull it.")
    assert stage.session.has_failed
    await stage.end()
