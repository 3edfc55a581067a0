from __future__ import annotations

import asyncio
import random
import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import SecretStr

from agent_core.errors import (
    DISK_FULL,
    STORAGE_UNAVAILABLE,
    DrydockError,
    EventStoreError,
    SandboxError,
    StreamClosedError,
)
from agent_core.events.control import AgentState, AgentStateChanged, ChangeAgentState
from agent_core.events.transient import StatusNotice
from agent_core.security.secrets import StaticSecret
from server.auth.identity import Identity
from server.conversation_manager.conversation_manager import (
    ConversationManager,
    ConversationStatus,
    LiveConversation,
)
from server.conversation_manager.forks import sandbox_of
from server.conversation_manager.standalone import StandaloneConversationManager
from server.db.errors import DatabaseError
from server.db.event_store import SqlEventStore
from server.db.repositories.conversations import ConversationRepository
from server.errors import AgentAtWorkError, ConfigurationError, ConversationNotFoundError, SessionError, status_of
from server.session import recovery
from server.session.agents.agent_sessions import UserSecrets
from server.session.crash_guard import FRUITLESS_LIVES, HELD_BACK, LIFE, Life
from server.session.recovery import Recovery, interrupted
from server.session.sandboxes import DiskReserve
from server.settings.extensions import class_at
from tests.unit.server.conftest import FakeAgent, House, MakeHouse, hello
from tests.waiting import ticks, until

ME = Identity()


async def started(house: House, conversation_id: str) -> FakeAgent:
    await house.manager.maybe_start_agent_loop(conversation_id)
    agent = house.agents.of(conversation_id)[-1]
    await until(lambda: agent.is_ready)
    return agent


async def test_however_many_join_at_once_one_session_starts(house: House) -> None:
    house.agents.open_seconds = 0.02
    await house.new("a")
    joined = await asyncio.gather(*(house.manager.join("a", f"c{n}", ME) for n in range(30)))
    assert len(house.agents.made) == 1
    assert len({id(session) for session in joined}) == 1
    assert house.manager.live("a").num_connections == 30
    streams = await asyncio.gather(*(session.next_stream(None) for session in joined))
    assert set(map(id, streams)) == {id(house.agents.made[0].stream)}


async def test_whose_it_is_is_known_in_the_first_moment_of_its_first_loading(house: House) -> None:
    await house.new("a")
    with house.manager._using("a") as session:
        session._loading = True  # what a load begins with, before it has asked the database
        assert session.is_loaded
        assert session.user_id is None
        assert await house.manager._owner_of("a") == ME.user_id
        session._loading = False


async def test_an_unknown_conversation_cannot_be_joined_and_is_not_made_by_trying(house: House) -> None:
    with pytest.raises(ConversationNotFoundError):
        await house.manager.join("unknown", "c", ME)
    with pytest.raises(ConversationNotFoundError):
        await house.manager.send("unknown", hello())
    with pytest.raises(ConversationNotFoundError):
        await house.manager.maybe_start_agent_loop("unknown")
    assert await house.database.conversations.ids() == set()
    assert not house.manager._sessions


async def test_another_users_conversation_is_as_good_as_unknown(house: House) -> None:
    await house.new("a", user_id="somebody")
    with pytest.raises(ConversationNotFoundError):
        await house.manager.join("a", "c", ME)
    await house.manager.join("a", "c", Identity("somebody"))


async def test_a_log_that_cannot_be_opened_refuses_the_join_and_the_next_one_tries_again(house: House) -> None:
    await house.new("a")
    house.agents.open_error = EventStoreError("the disk is on fire")
    for connection in ("c1", "c2"):
        with pytest.raises(EventStoreError):
            await house.manager.join("a", connection, ME)
    assert house.manager.live("a") == LiveConversation()
    house.agents.open_error = None
    await house.manager.join("a", "c3", ME)
    assert house.manager.live("a").num_connections == 1


async def test_settings_that_name_what_does_not_exist_are_an_error_in_words(house: House) -> None:
    await house.new("a")
    house.agents.open_error = KeyError("agent 'X' is not known")
    with pytest.raises(SessionError, match="agent 'X' is not known"):
        await house.manager.maybe_start_agent_loop("a")


async def test_a_message_at_the_very_moment_of_unloading_is_not_left_alone(make_house: MakeHouse) -> None:
    async with make_house(idle_unload_seconds=0.02, cull_interval_seconds=0.001) as house:
        await house.new("a")
        for number in range(30):
            await house.manager.send("a", hello(f"message {number}"))
            await asyncio.sleep(0.02)
            # Whatever was unloaded in between: nothing that was taken is missing.
        stored = await house.database.events.read("a", limit=1000)
        assert sum(b"MessageEvent" in event.payload for event in stored) == 30


async def test_a_caller_that_goes_away_does_not_break_the_start_of_others(house: House) -> None:
    house.agents.open_seconds = 0.05
    await house.new("a")
    first = asyncio.create_task(house.manager.join("a", "c1", ME))
    second = asyncio.create_task(house.manager.join("a", "c2", ME))
    await until(lambda: house.agents.made)
    first.cancel()
    await second
    assert len(house.agents.made) == 1
    assert house.manager.live("a").num_connections == 1


async def test_status_goes_from_starting_to_running_to_stopped(house: House) -> None:
    house.agents.start_seconds = 0.05
    await house.new("a")
    assert house.manager.live("a").status is ConversationStatus.STOPPED
    live = await house.manager.maybe_start_agent_loop("a")
    assert live == LiveConversation(ConversationStatus.STARTING, "STATUS$STARTING_RUNTIME", 0)
    await until(lambda: house.manager.live("a").status is ConversationStatus.RUNNING)
    before = await house.manager.stop("a")
    assert before.status is ConversationStatus.RUNNING
    assert house.manager.live("a") == LiveConversation()
    assert house.agents.made[0].closed_with == (True, "stop")


async def test_what_is_sent_to_a_stopped_conversation_starts_it_and_is_in_the_log_at_once(house: House) -> None:
    house.agents.start_seconds = 60
    await house.new("a")
    await house.manager.send("a", hello())
    assert await house.database.events.last_id("a") == 0
    assert house.manager.live("a").status is ConversationStatus.STARTING


async def test_what_is_sent_while_it_is_being_unloaded_is_not_lost(house: House) -> None:
    await house.new("a")
    agent = await started(house, "a")
    house.agents.close_seconds = 0.05
    stopping = asyncio.create_task(house.manager.stop("a"))
    await until(lambda: agent.is_closing)
    await house.manager.send("a", hello("late"))
    await stopping
    stored = await house.database.events.read("a", after=-1)
    assert sum(b'"late"' in event.payload for event in stored) == 1
    assert len(house.agents.made) == 2


async def test_a_client_stays_connected_while_sessions_come_and_go(house: House) -> None:
    await house.new("a")
    session = await house.manager.join("a", "c", ME)
    first = await session.next_stream(None)
    assert first is not None
    await house.manager.stop("a")
    assert first.closed
    waiting = asyncio.create_task(session.next_stream(first))
    await ticks(50)
    assert not waiting.done()
    await house.manager.send("a", hello())
    second = await waiting
    assert second is not None
    assert second is not first


async def test_deleting_tells_waiting_clients_that_there_will_be_no_more(house: House) -> None:
    await house.new("a")
    session = await house.manager.join("a", "c", ME)
    first = await session.next_stream(None)
    waiting = asyncio.create_task(session.next_stream(first))
    assert await house.manager.delete("a")
    assert await waiting is None
    assert await house.database.conversations.get("a") is None
    with pytest.raises(ConversationNotFoundError):
        await house.manager.send("a", hello())
    assert not await house.manager.delete("a")
    await house.manager.leave("c")
    assert not house.manager._sessions


async def test_deleting_and_starting_at_once_leaves_nothing_behind(house: House) -> None:
    allowed = (ConversationNotFoundError, StreamClosedError)
    for number in range(10):
        name = f"c{number}"
        await house.new(name)
        results = await asyncio.gather(
            house.manager.maybe_start_agent_loop(name),
            house.manager.delete(name),
            house.manager.send(name, hello()),
            house.manager.delete(name),
            return_exceptions=True,
        )
        for result in results:
            assert not isinstance(result, Exception) or isinstance(result, allowed)
        assert await house.database.conversations.get(name) is None
        assert await house.database.events.last_id(name) == -1
    assert not house.manager._sessions


async def test_a_failed_start_is_tried_again_by_a_start_and_by_a_message(house: House) -> None:
    house.agents.start_error = SandboxError("no engine")
    await house.new("a")
    await house.manager.maybe_start_agent_loop("a")
    await until(lambda: house.manager.live("a").status is ConversationStatus.RUNNING)
    assert house.manager.live("a").runtime_status == "STATUS$ERROR"
    house.agents.start_error = None
    await house.manager.send("a", hello())
    await until(lambda: house.manager.live("a").runtime_status == "STATUS$READY")
    assert len(house.agents.made) == 2
    await house.manager.maybe_start_agent_loop("a")
    assert len(house.agents.made) == 2


async def test_a_message_that_comes_while_a_failed_start_is_written_down_starts_it_again(house: House) -> None:
    house.agents.start_error = SandboxError("no engine")
    house.agents.writing_failures.clear()
    await house.new("a")
    await house.manager.maybe_start_agent_loop("a")
    failed = house.agents.made[0]
    await until(lambda: failed.has_failed)
    house.agents.start_error = None
    sending = asyncio.create_task(house.manager.send("a", hello()))
    for _ in range(50):
        await asyncio.sleep(0)
    house.agents.writing_failures.set()
    assert (await sending).id > 0, "the failure stands in the log behind the message"
    await until(lambda: house.manager.live("a").runtime_status == "STATUS$READY")
    assert len(house.agents.made) == 2


async def test_what_cannot_even_be_loaded_again_is_loaded_as_soon_as_the_storage_lets_it(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.conversation_manager.failed_starts.START_AGAIN_SECONDS", 0.01)
    monkeypatch.setattr("server.conversation_manager.failed_starts.FIRST_WAIT_SECONDS", 0.01)
    full = EventStoreError("the disk is full", code=DISK_FULL)
    house.agents.start_error = full
    house.agents.writing_failures.clear()
    await house.new("a")
    await house.manager.maybe_start_agent_loop("a")
    await until(lambda: house.agents.made[0].has_failed)
    house.agents.open_error = full
    house.agents.writing_failures.set()
    await until(lambda: len(house.agents.made) > 3)
    house.agents.open_error = house.agents.start_error = None
    await until(lambda: house.manager.live("a").runtime_status == "STATUS$READY")


async def test_what_cannot_be_started_is_tried_again_after_pauses_that_have_a_limit(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.conversation_manager.failed_starts.FIRST_WAIT_SECONDS", 0.05)
    monkeypatch.setattr("server.conversation_manager.failed_starts.LONGEST_WAIT_SECONDS", 0.1)
    house.agents.start_error = EventStoreError("the files that wait cannot be read", code=STORAGE_UNAVAILABLE)
    await house.new("a")
    began = time.monotonic()
    await house.manager.maybe_start_agent_loop("a")
    await until(lambda: len(house.agents.made) > 10)
    assert 0.6 < time.monotonic() - began < 30, "neither at once, nor after twice the time each time"
    house.agents.start_error = None
    await until(lambda: house.manager.live("a").runtime_status == "STATUS$READY")


async def test_what_was_at_work_and_cannot_be_deleted_goes_on(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    await house.new("a")
    await (await started(house, "a")).be(AgentState.RUNNING)
    while await house.state_of("a") != "running":  # noqa: ASYNC110 - its recorder follows the log
        await asyncio.sleep(0.01)
    house.agents.cannot_store = True

    async def delete(*_: object) -> bool:
        raise EventStoreError("the disk is full", code=DISK_FULL)

    monkeypatch.setattr(ConversationRepository, "delete", delete)
    with pytest.raises(EventStoreError, match="full"):
        await house.manager.delete("a")
    await until(lambda: house.manager.live("a").runtime_status == "STATUS$READY")
    assert len(house.agents.made) == 2


async def test_a_broken_session_gives_way_to_another_one_with_the_next_message(house: House) -> None:
    await house.new("a")
    broken = await started(house, "a")
    broken.is_broken = True
    await house.manager.send("a", hello())
    await until(lambda: house.manager.live("a").runtime_status == "STATUS$READY")
    assert (broken.closed_with, len(house.agents.made)) == ((False, "keep"), 2)


async def test_a_message_is_refused_when_a_start_after_a_crash_could_not_know_of_it(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.new("a")
    agent = await started(house, "a")
    last = agent.stream.last_id

    async def update(*_: object, **__: object) -> bool:
        raise EventStoreError("the disk is full", code=DISK_FULL)

    monkeypatch.setattr(ConversationRepository, "update", update)
    with pytest.raises(EventStoreError, match="full"):
        await house.manager.send("a", hello())
    assert agent.stream.last_id == last
    assert await house.state_of("a") == "awaiting_user_input"


async def test_a_stopped_conversation_says_so_to_whoever_follows_it(house: House) -> None:
    await house.new("a")
    agent = await started(house, "a")
    async with agent.stream.subscribe(after=agent.stream.last_id, transients=True) as events:
        await house.manager.stop("a")
        seen = [event async for event in events]
    assert isinstance(seen[0], StatusNotice)
    assert (seen[0].status_id, seen[0].level) == ("STATUS$STOPPED", "info")
    assert isinstance(seen[1], AgentStateChanged)


async def test_a_deleted_conversation_has_a_last_word_for_its_clients_and_a_suspended_one_has_none(
    house: House,
) -> None:
    for name in ("a", "b"):
        await house.new(name)
    deleted, kept = [await house.manager.join(name, name, ME) for name in ("a", "b")]
    await house.manager.delete("a")
    assert deleted.farewell is not None
    assert (deleted.farewell.status_id, deleted.farewell.level) == ("CONVERSATION$NOT_FOUND", "error")
    await house.manager.__aexit__(None, None, None)
    assert kept.farewell is None


async def test_an_idle_conversation_is_unloaded_as_it_is_and_its_sandbox_paused_then_stopped(
    make_house: MakeHouse,
) -> None:
    async with make_house(idle_unload_seconds=0.05, sandbox_stop_seconds=0.05) as house:
        await house.new("a")
        await house.manager.join("a", "looks on", ME)  # it does not become idle before its sandbox is known
        agent = await started(house, "a")
        await agent.sandbox.start()
        await house.database.conversations.update("a", sandbox={"provider": "fake"})
        (sandbox,) = house.provider.sandboxes.values()
        await house.manager.leave("looks on")
        await until(lambda: agent.closed_with is not None)
        assert agent.closed_with == (False, "pause")
        await until(lambda: house.manager.live("a").status is ConversationStatus.STOPPED)
        assert not house.manager._sessions
        await until(lambda: sandbox.status == "stopped")
        assert await house.state_of("a") == "awaiting_user_input"


async def test_a_conversation_with_a_client_or_with_work_is_never_unloaded(make_house: MakeHouse) -> None:
    async with make_house(idle_unload_seconds=0.03) as house:
        await house.new("with-client")
        await house.new("at-work")
        await house.manager.join("with-client", "c", ME)
        await (await started(house, "at-work")).be(AgentState.RUNNING)
        await asyncio.sleep(0.1)
        assert [agent.closed_with for agent in house.agents.made] == [None, None]
        await house.manager.leave("c")
        await until(lambda: house.agents.of("with-client")[0].closed_with is not None)


async def test_the_first_message_makes_a_title_once_and_announces_it(house: House) -> None:
    await house.new("a")
    await house.manager.send("a", hello("Sail around the world"))
    await until(lambda: bool(house.titles.announced))
    await house.manager.send("a", hello("And back again"))
    await started(house, "a")
    assert house.titles.announced == [("a", "Sail around the world")]
    record = await house.database.conversations.get("a")
    assert record is not None
    assert record.title == "Sail around the world"


async def test_facts_of_the_list_follow_the_log(house: House) -> None:
    await house.new("a")
    agent = await started(house, "a")
    await agent.be(AgentState.PAUSED)

    async def paused() -> bool:
        return await house.state_of("a") == "paused"

    await until(paused)
    record = await house.database.conversations.get("a")
    assert record is not None
    assert record.last_updated_at is not None
    assert record.last_updated_at > record.created_at


async def test_a_restart_resumes_what_was_at_work_and_nothing_else(make_house: MakeHouse) -> None:
    async with make_house() as house:
        for name, state in (("working", AgentState.RUNNING), ("waiting", AgentState.AWAITING_USER_INPUT)):
            await house.new(name)
            await (await started(house, name)).be(state)
        await house.new("never-started")
    assert [agent.closed_with for agent in house.agents.made] == [(False, "keep"), (False, "stop")]
    async with make_house() as house:
        await until(lambda: bool(house.agents.made))
        await until(lambda: house.manager.live("working").status is ConversationStatus.RUNNING)
        assert [agent.conversation_id for agent in house.agents.made] == ["working"]
    async with make_house(resume_on_start=False) as house:
        assert not house.agents.made


async def test_a_message_that_was_taken_right_before_a_crash_is_resumed(make_house: MakeHouse) -> None:
    async with make_house() as house:
        await house.new("a")
        await started(house, "a")
        await house.manager.send("a", hello())
        # What the fake agent never does is to answer: its last recorded state is the one from before the message.
        assert await house.state_of("a") == "running"


@pytest.mark.parametrize("held_back_seconds", [0.0, 0.05])
async def test_what_is_held_back_waits_for_its_user_or_for_its_time(
    make_house: MakeHouse, held_back_seconds: float
) -> None:
    loop = asdict(Life(fruitless=FRUITLESS_LIVES))
    async with make_house(resume_on_start=False) as house:
        await house.new("poison", agent_state="running", options={LIFE: loop})
        await house.new("good", agent_state="running")
    async with make_house(held_back_seconds=held_back_seconds) as house:
        await until(lambda: bool(house.agents.of("good")))
        await until(lambda: house.manager.live("poison").runtime_status == HELD_BACK or house.agents.of("poison"))
        if not held_back_seconds:
            await ticks(20)
            assert not house.agents.of("poison")
            await house.manager.send("poison", hello())
        await until(lambda: house.manager.live("poison").status is ConversationStatus.RUNNING)

        async def is_forgotten() -> bool:
            record = await house.database.conversations.get("poison")
            return record is not None and record.options == {}

        await until(is_forgotten)  # it came to rest


async def test_what_is_held_back_can_be_stopped_and_removed_without_being_loaded(make_house: MakeHouse) -> None:
    loop = asdict(Life(fruitless=FRUITLESS_LIVES))
    async with make_house(resume_on_start=False) as house:
        for name in ("a", "b"):
            await house.new(name, agent_state="running", options={LIFE: loop})
    async with make_house() as house:
        await until(lambda: all(house.manager.guard.is_held(name) for name in ("a", "b")))
        await house.manager.stop("a")
        assert await house.manager.delete("b")
        assert await house.state_of("a") == "stopped"
        assert house.manager.live("a") == LiveConversation()
        assert not house.agents.made


async def test_what_is_held_back_is_looked_at_and_halted_without_being_built(make_house: MakeHouse) -> None:
    loop = asdict(Life(fruitless=FRUITLESS_LIVES, under_way=True))  # so that it is told
    async with make_house(resume_on_start=False) as house:
        await house.new("a", agent_state="running", options={LIFE: loop})
    async with make_house(held_back_seconds=0) as house:
        session = await house.manager.join("a", "c", ME)
        log = await session.next_stream(None)
        assert log is not None
        async with log.subscribe(transients=True) as seen:
            told = [await anext(seen), await anext(seen)]  # as the guard wrote it down, and as it is now
        assert [HELD_BACK in (getattr(one, "reason", ""), getattr(one, "status_id", "")) for one in told] == [True] * 2
        with pytest.raises(SandboxError, match="held back") as refused:  # nor for its files
            await sandbox_of(house.manager, "a")
        assert status_of(refused.value) == 503
        assert house.manager.live("a").runtime_status == HELD_BACK
        await house.manager.send("a", ChangeAgentState(agent_state=AgentState.PAUSED))
        assert await house.state_of("a") == "paused"
        assert log.closed
        assert not house.manager.guard.is_held("a")
        assert not house.agents.made
        await house.manager.send("a", ChangeAgentState(agent_state=AgentState.RUNNING))
        assert await session.next_stream(log) is house.agents.of("a")[0].stream


async def test_what_waits_in_line_since_the_last_start_is_built_when_its_turn_comes(make_house: MakeHouse) -> None:
    async with make_house(resume_on_start=False) as house:
        for number, name in enumerate(("works", "first", "second")):
            await house.new(name, agent_state="running", waiting_number=number)
    async with make_house(max_working_conversations=1) as house:
        house.agents.start_seconds = 100
        sessions = {name: await house.manager.join(name, name, ME) for name in ("first", "second")}
        logs = {name: await session.next_stream(None) for name, session in sessions.items()}
        log = logs["first"]
        assert log is not None
        async with log.subscribe(transients=True) as seen:
            async for notice in seen:  # until it is not on the way to its place any more
                if isinstance(notice, StatusNotice) and notice.message.startswith("First in line"):
                    break
        assert house.manager.live("second").place == house.manager.queue.place("second") is not None
        await until(lambda: house.agents.made)
        assert [agent.conversation_id for agent in house.agents.made] == ["works"]
        await house.manager.send("second", ChangeAgentState(agent_state=AgentState.PAUSED))
        await house.manager.stop("works")
        assert await sessions["first"].next_stream(log) is not None
        await until(lambda: house.agents.of("first"))
        await ticks(20)
        assert not house.agents.of("second")
        assert await house.state_of("second") == "paused"


async def test_one_that_cannot_be_resumed_whatever_the_reason_leaves_the_others_alone(
    make_house: MakeHouse, caplog: pytest.LogCaptureFixture
) -> None:
    async with make_house(resume_on_start=False) as house:
        for number, name in enumerate(("good", "bad")):
            moment = datetime(2026, 1, 1 + number, tzinfo=UTC)
            await house.new(name, agent_state="running", last_updated_at=moment)
        resumed: list[str] = []

        async def start(conversation_id: str) -> None:
            if conversation_id == "bad":
                raise ZeroDivisionError("nobody foresaw this")
            resumed.append(conversation_id)

        manager, left = house.manager, await interrupted(house.database.conversations)
        await Recovery(start, manager.queue, manager.guard, concurrency=1).resume_all(left)
        assert resumed == ["good"]
    assert "conversation bad could not be resumed" in caplog.text


async def test_recovery_goes_on_when_the_storage_does(make_house: MakeHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    async with make_house(resume_on_start=False) as house:
        await house.new("a", agent_state="running")
    failures = dict.fromkeys(("in_states", "get", "last_ids"), 1)

    def failing(owner: type, name: str) -> None:
        real = getattr(owner, name)

        async def call(*given: Any, **named: Any) -> Any:
            if failures[name]:
                failures[name] -= 1
                raise EventStoreError("the disk reported an error", code=STORAGE_UNAVAILABLE)
            return await real(*given, **named)

        monkeypatch.setattr(owner, name, call)

    failing(ConversationRepository, "in_states")
    failing(ConversationRepository, "get")
    failing(SqlEventStore, "last_ids")
    monkeypatch.setattr(recovery, "AGAIN_SECONDS", 0.01)
    async with make_house() as house:
        await until(lambda: bool(house.agents.of("a")))
    assert not any(failures.values())


async def test_what_was_at_work_is_taken_up_also_where_nothing_new_may_begin(
    make_house: MakeHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(_: object) -> None:
        raise SandboxError("the disk is nearly full", code="disk_reserve")

    async with make_house(resume_on_start=False) as house:
        await house.new("a", agent_state="running")
    monkeypatch.setattr(DiskReserve, "check", no_room)
    async with make_house() as house:
        await until(lambda: house.manager.live("a").status is not ConversationStatus.STOPPED)
        await house.new("b")
        with pytest.raises(SandboxError, match="nearly full"):
            await house.manager.maybe_start_agent_loop("b")


async def test_a_stop_that_cannot_be_stored_is_an_error_and_can_be_made_up_for(
    make_house: MakeHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_given: Any, **_named: Any) -> int:
        raise EventStoreError("the disk is full", code=DISK_FULL)

    async with make_house() as house:
        await house.new("a")
        agent = await started(house, "a")
        await house.manager.send("a", hello())
        house.agents.cannot_store = True
        with monkeypatch.context() as patched:
            patched.setattr(SqlEventStore, "append", refuse)
            with pytest.raises(EventStoreError, match=r"next start would take it up.*disk is full") as caught:
                await house.manager.stop("a")
        assert caught.value.code == DISK_FULL
        assert agent.closed_with == (True, "stop")
        assert await house.state_of("a") == "running"
        await house.manager.stop("a")
        assert await house.state_of("a") == "stopped"
        assert house.manager.live("a") == LiveConversation()


async def test_one_idle_conversation_that_does_not_end_well_does_not_keep_the_others(make_house: MakeHouse) -> None:
    async with make_house(idle_unload_seconds=0.05) as house:
        house.agents.close_errors["bad"] = EventStoreError("the disk is full", code=DISK_FULL)
        for name in ("bad", "good"):
            await house.new(name)
            await house.manager.maybe_start_agent_loop(name)
        await until(lambda: all(house.agents.of(name)[0].closed_with for name in ("bad", "good")))


async def test_what_is_stopped_before_it_is_taken_up_is_not_taken_up(make_house: MakeHouse) -> None:
    async with make_house(resume_on_start=False) as house:
        names = ["a", "b", "c"]
        for name in names:
            await house.new(name, agent_state="running")
        going_on = asyncio.Event()

        async def start(conversation_id: str) -> None:
            begun.append(conversation_id)
            await going_on.wait()

        begun: list[str] = []
        manager, left = house.manager, await interrupted(house.database.conversations)
        recovery = Recovery(start, manager.queue, manager.guard, concurrency=1)
        resuming = asyncio.create_task(recovery.resume_all(left), name="resuming")
        await until(lambda: bool(begun))
        stopped, deleted = (name for name in names if name not in begun)
        assert manager.live(stopped).status is ConversationStatus.STARTING
        await manager.stop(stopped)
        await manager.delete(deleted)
        going_on.set()
        await resuming
        assert len(begun) == 1
        assert await house.state_of(stopped) == "stopped"
        assert manager.live(stopped).status is ConversationStatus.STOPPED


async def test_what_waits_for_its_turn_is_as_little_reconfigured_as_what_works(make_house: MakeHouse) -> None:
    async with make_house(max_working_conversations=1) as house:
        house.agents.start_seconds = 100
        for name in ("works", "waits"):
            await house.new(name)
            await house.manager.send(name, hello())
        await until(lambda: house.manager.queue.place("waits") is not None)
        with pytest.raises(AgentAtWorkError):
            await house.manager.reconfigure("waits", {})
        assert house.manager.queue.place("waits") is not None


async def test_a_restart_with_fewer_places_stops_no_sandbox_of_what_was_at_work(make_house: MakeHouse) -> None:
    names = ["a", "b", "c"]
    async with make_house(resume_on_start=False) as house:
        for name in names:
            await house.new(name, sandbox={"provider": "fake"}, agent_state="running")
            await house.start_sandbox(name)
        provider = house.provider
    async with make_house(provider, max_sandboxes=1, sandbox_stop_seconds=0.01) as house:
        house.agents.start_seconds = 100
        await until(lambda: bool(house.agents.made))
        await asyncio.sleep(0.2)  # many looks for what nobody attends to
        assert [one.status.value for one in provider.sandboxes.values()] == ["running"] * 3
        assert house.manager.queue._sandboxes() == 3


async def test_leftover_sandboxes_of_deleted_conversations_are_removed_before_any_is_made(
    make_house: MakeHouse,
) -> None:
    async with make_house() as house:
        await house.new("kept")
        for name in ("kept", "gone"):
            await house.start_sandbox(name)
        provider = house.provider
    async with make_house(provider):
        await until(lambda: len(provider.sandboxes) == 1)
        assert [key[1] for key in provider.sandboxes] == ["kept"]


async def test_a_sandbox_that_a_killed_process_left_running_is_stopped_when_nobody_comes_back(
    make_house: MakeHouse,
) -> None:
    async with make_house() as house:
        await house.new("left", sandbox={"provider": "fake"}, user_id="ann")
        await house.new("used", sandbox={"provider": "fake"})
        for name in ("left", "used"):
            await house.start_sandbox(name)
        provider = house.provider
    async with make_house(provider, sandbox_stop_seconds=0.1) as house:
        await house.manager.join("used", "c", ME)
        by_name = {key[1]: sandbox for key, sandbox in provider.sandboxes.items()}
        await until(lambda: by_name["left"].status == "stopped")
        await until(lambda: by_name["used"].status == "running")


async def test_left_sandboxes_are_found_however_many_conversations_came_after(
    make_house: MakeHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tells_nothing(sandboxes: object) -> None:
        """Of a provider that cannot say what runs."""

    monkeypatch.setattr("server.session.recovery.PAGE", 2)
    monkeypatch.setattr("server.session.sandboxes.Sandboxes.running", tells_nothing)
    async with make_house() as house:
        await house.new("left", sandbox={"provider": "fake"}, user_id="ann")
        await house.start_sandbox("left")
        for number in range(5):
            await house.new(f"later{number}")
        provider = house.provider
    async with make_house(provider, sandbox_stop_seconds=0.1):
        (sandbox,) = provider.sandboxes.values()
        await until(lambda: sandbox.status == "stopped")


@pytest.mark.parametrize("what", ["delete", "stop", "maybe_start_agent_loop"])
async def test_what_is_deleted_stopped_or_loaded_while_its_sandbox_is_looked_at_is_not_taken_to_be_left(
    make_house: MakeHouse, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    looked, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(*about: Any) -> bool:
        found = await recovery.is_up(*about)
        looked.set()
        await go_on.wait()
        return found

    async with make_house() as house:
        await house.new("left", sandbox={"provider": "fake"})
        await house.start_sandbox("left")
    monkeypatch.setattr("server.conversation_manager.standalone.is_up", slowly)
    async with make_house(house.provider, sandbox_stop_seconds=0) as house:
        (search,) = (task for task in house.manager._tasks if task.get_name() == "unattended")
        await looked.wait()
        await getattr(house.manager, what)("left")
        if what == "maybe_start_agent_loop":
            await until(lambda: house.manager.live("left").status is ConversationStatus.RUNNING)
            with house.manager._using("left") as session:
                await session.unload(stopped=False, sandbox="stop")
        go_on.set()
        await search
        assert not house.manager._unattended_since


async def test_the_sandbox_of_what_could_not_be_deleted_is_still_counted(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.new("a")
    await started(house, "a")

    async def delete(*_: object) -> bool:
        raise EventStoreError("the disk is full", code=DISK_FULL)

    with monkeypatch.context() as patch:
        patch.setattr(ConversationRepository, "delete", delete)
        with pytest.raises(EventStoreError, match="full"):
            await house.manager.delete("a")
    assert set(house.manager._unattended_since) == {"a"}
    await house.manager.delete("a")
    assert not house.manager._unattended_since


async def test_what_is_changed_while_it_is_stopped_has_no_sandbox_left(house: House) -> None:
    house.agents.close_seconds = 0.05
    await house.new("a")
    await started(house, "a")
    stopping = asyncio.create_task(house.manager.stop("a"))
    await until(lambda: house.agents.made[0].is_closing)
    assert await house.manager.reconfigure("a", {"key": "value"})
    await stopping
    assert not house.manager._unattended_since


async def test_a_server_that_ends_leaves_no_sandbox_paused_unless_its_agent_is_at_work(make_house: MakeHouse) -> None:
    async with make_house(idle_unload_seconds=0.05) as house:
        await house.new("idle")
        await house.manager.join("idle", "looks on", ME)
        agent = await started(house, "idle")
        await agent.sandbox.start()
        await house.database.conversations.update("idle", sandbox={"provider": "fake"})
        await house.manager.leave("looks on")
        (sandbox,) = house.provider.sandboxes.values()
        await until(lambda: house.manager.live("idle").status is ConversationStatus.STOPPED)
        await sandbox.pause()
        await house.new("held back", sandbox={"provider": "fake"}, agent_state="running")
        await house.start_sandbox("held back")
        house.manager._unattended_since["held back"] = time.monotonic()
        by_name = {key[1]: sandbox for key, sandbox in house.provider.sandboxes.items()}
    assert {name: one.status.value for name, one in by_name.items()} == {"idle": "stopped", "held back": "running"}


async def test_a_slow_end_of_a_conversation_does_not_hold_up_the_server_for_long(make_house: MakeHouse) -> None:
    async with make_house(shutdown_seconds=0.1) as house:
        await house.new("a")
        await started(house, "a")
        house.agents.close_seconds = 30
    # Leaving it came to an end: that is the test; the next house gets the database.
    async with make_house(resume_on_start=False) as house:
        assert await house.state_of("a") == "awaiting_user_input"


async def test_a_conversation_that_does_not_end_well_when_the_server_ends_is_told_with_its_reason(
    make_house: MakeHouse, caplog: pytest.LogCaptureFixture
) -> None:
    async with make_house() as house:
        await house.new("a")
        await started(house, "a")
        house.agents.close_errors["a"] = DrydockError("its database is gone")
    assert "conversation a: its session did not end in order: its database is gone" in caplog.text


async def test_nothing_is_taken_while_the_server_ends(make_house: MakeHouse) -> None:
    async with make_house() as house:
        await house.new("a")
    with pytest.raises(Exception, match="shutting down"):
        await house.manager.send("a", hello())


async def test_a_message_is_taken_however_often_its_conversation_is_unloaded_meanwhile(make_house: MakeHouse) -> None:
    async with make_house() as house:
        await house.new("a")
        await started(house, "a")
        session = house.manager._sessions["a"]
        sending = [asyncio.create_task(house.manager.send("a", hello(f"message {number}"))) for number in range(20)]
        while not all(task.done() for task in sending):
            await session.unload_if(lambda activity: True, sandbox="keep")
        assert [task.exception() for task in sending] == [None] * 20
        stored = await house.database.events.read("a", limit=1000)
        assert sum(b"MessageEvent" in event.payload for event in stored) == 20


async def test_any_mixture_of_calls_ends_in_a_defined_state(make_house: MakeHouse) -> None:
    rng = random.Random(20)
    async with make_house(max_sandboxes=2, idle_unload_seconds=0.02) as house:
        names = [await house.new(f"c{number}") for number in range(4)]
        house.agents.open_seconds = house.agents.start_seconds = house.agents.close_seconds = 0.003
        sent: dict[str, int] = dict.fromkeys(names, 0)

        async def client(number: int) -> None:
            for step in range(15):
                name = rng.choice(names)
                match rng.randrange(5):
                    case 0:
                        await house.manager.join(name, f"{number}-{step}", ME)
                        await asyncio.sleep(rng.random() / 200)
                        await house.manager.leave(f"{number}-{step}")
                    case 1:
                        await house.manager.stop(name)
                    case 2:
                        await house.manager.maybe_start_agent_loop(name)
                    case _:
                        await house.manager.send(name, hello(f"message {number}-{step}"))
                        sent[name] += 1

        async with asyncio.timeout(60):
            await asyncio.gather(*(client(number) for number in range(8)))
        for name in names:
            stored = await house.database.events.read(name, limit=1000)
            assert [event.id for event in stored] == list(range(len(stored)))
            assert sum(b"MessageEvent" in event.payload for event in stored) == sent[name]
        open_agents = [agent for agent in house.agents.made if agent.closed_with is None]
        assert len({agent.conversation_id for agent in open_agents}) == len(open_agents)


def test_the_class_of_the_manager_is_found_by_its_path() -> None:
    path = "server.conversation_manager.standalone.StandaloneConversationManager"
    assert class_at(path, ConversationManager, setting="s") is StandaloneConversationManager  # type: ignore[type-abstract]


@pytest.mark.parametrize(
    "path", ["", "nonsense", "server.settings.settings.Settings", "server.nothing.X", "server.settings.settings.Nope"]
)
def test_a_path_that_leads_to_no_manager_is_refused_with_the_setting_s_name(path: str) -> None:
    with pytest.raises(ConfigurationError, match="conversation_manager_class"):
        class_at(path, ConversationManager, setting="conversation_manager_class")  # type: ignore[type-abstract]


async def test_new_secrets_reach_the_users_conversations_also_one_that_is_being_loaded(house: House) -> None:
    for conversation_id in ("running", "loading"):
        await house.new(conversation_id)
    await house.new("others", user_id="somebody")
    running, others = await started(house, "running"), await started(house, "others")
    house.agents.open_seconds = 0.1
    loading = asyncio.create_task(house.manager.maybe_start_agent_loop("loading"))
    await until(lambda: len(house.agents.made) == 3)
    new = {"API_KEY": StaticSecret(secret=SecretStr("value"))}
    house.agents.secrets = UserSecrets(new, ("another value",))
    await house.manager.refresh_secrets("")
    await loading
    for agent in (running, house.agents.of("loading")[0]):
        assert agent.settings.named_secrets == new
        assert agent.stream.secrets.text("another value") == "<secret_hidden>"
    assert others.settings.named_secrets == {}


async def test_secrets_that_cannot_be_read_for_now_reach_conversations_as_soon_as_they_can_be(house: House) -> None:
    await house.new("a")
    agent = await started(house, "a")
    house.agents.secrets = DatabaseError("the disk is gone")
    await house.manager.refresh_secrets("")
    assert agent.settings.named_secrets == {}
    new = {"API_KEY": StaticSecret(secret=SecretStr("value"))}
    house.agents.secrets = UserSecrets(new, ("another value",))
    await until(lambda: agent.settings.named_secrets == new)
    assert agent.stream.secrets.text("another value") == "<secret_hidden>"
