"""A session that cannot be opened leaves nothing behind."""

from __future__ import annotations

import asyncio
import logging

import pytest

from agent_core.controller.agent_controller import AgentController
from agent_core.errors import EventStoreError, SandboxError
from agent_core.events.control import AgentState, AgentStateChanged
from agent_core.events.llm_events import MessageEvent
from agent_core.events.messages import Message
from agent_core.events.stream import EventStream
from agent_core.llm.llm import LLM
from agent_core.runtime.channel.connection import SandboxConnection
from agent_core.session.agent_session import AgentSession
from agent_core.session.settings import SessionSettings
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


def started(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    """What was logged of starts: each line's level, and the facts that it carries."""
    names = ("success", "restored_state")
    lines = [record for record in caplog.records if getattr(record, "signal", "") == "agent_session_start"]
    assert all(vars(record)["duration"] >= 0 and vars(record)["conversation_id"] == "c" for record in lines)
    return [{"level": record.levelname, **{name: vars(record)[name] for name in names}} for record in lines]


async def test_each_start_is_logged_with_its_success_and_duration(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "agent_core.session.agent_session")
    stage = Stage()
    await stage.begin()
    assert started(caplog) == [{"level": "INFO", "success": True, "restored_state": False}]
    await stage.crash()
    caplog.clear()
    await stage.begin()
    assert started(caplog) == [{"level": "INFO", "success": True, "restored_state": True}]
    await stage.crash()
    caplog.clear()

    async def fail(_connection: SandboxConnection, _progress: object) -> None:
        raise SandboxError("The image is not there.", code="no_image")

    with monkeypatch.context() as patched:
        patched.setattr(SandboxConnection, "start", fail)
        with pytest.raises(SandboxError):
            await stage.begin()
    assert started(caplog) == [{"level": "INFO", "success": False, "restored_state": True}]
    await stage.end()


async def test_a_closed_session_is_not_started_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    session = await AgentSession.open(
        "c",
        store=stage.store,
        settings=SessionSettings(llm=LLM(model="openai/stage").using(stage.model)),
        sandbox=SandboxConnection(stage.sandbox),
    )
    await session.close(stopped=False)
    with caplog.at_level(logging.WARNING, "agent_core.session.agent_session"):
        await session.start()
    assert [record.getMessage() for record in caplog.records] == [
        "conversation c: its session was closed before it was started"
    ]
    assert not session.is_ready
    assert session.running is None


async def test_a_stop_in_the_last_moment_of_a_start_waits_for_nobody_who_does_not_follow_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begun, stage = asyncio.Event(), Stage()

    async def begin(_controller: AgentController, _initial: object = ()) -> None:
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(AgentController, "begin", begin)
    starting = asyncio.create_task(stage.begin())
    async with asyncio.timeout(60):
        await begun.wait()
        starting.cancel()
        await asyncio.wait([starting])
        await stage.session.close(stopped=True)
    assert "not closed cleanly" not in caplog.text
    stored = await stage.store.read("c")
    assert b'"agent_state":"stopped"' in stored[-1].payload


@pytest.mark.parametrize(("wished", "level"), [(True, "INFO"), (False, "DEBUG")])
async def test_every_event_is_logged_masked_and_cut_at_the_level_that_is_wished(
    wished: bool, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "agent_core.events.stream")
    async with staged(log_all_events=wished, secrets=("sesame-open",)) as stage:
        text = "sesame-open " + "x" * 10_000
        await stage.session.send(MessageEvent(source="user", llm_message=Message.user(text)))
        stored = [event.id for event in await stage.log()]
    lines = [record for record in caplog.records if record.name == "agent_core.events.stream"]
    assert {record.levelname for record in lines} == {level}
    logged = [record.getMessage() for record in lines]
    assert [int(line.split("event ")[1].split(":")[0]) for line in logged][: len(stored)] == stored
    assert max(map(len, logged)) < 2100
    assert "<secret_hidden> xxx" in "".join(logged)
    assert "sesame" not in "".join(logged)
