"""What a connected client sees: history, then the present, each event once and in order."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any

import pytest

from agent_core.agent.client_tool import ClientToolAction
from agent_core.events.control import AgentState, AgentStateChanged, ChangeAgentState, ForeignEvent, RecallAction
from agent_core.events.llm_events import ActionDecision, ActionEvent, MessageEvent, ObservationEvent
from agent_core.events.messages import Message
from agent_core.events.serialization import AnyEvent
from agent_core.events.stream import EventStream
from agent_core.events.transient import ClientCall, OutputDelta, StatusNotice, TextDelta, TextDiscarded
from agent_core.tools.terminal import TerminalAction, TerminalObservation
from server.errors import coded_page
from server.sockets.connections import SocketLimits
from tests.contract.sockets.loopback import Client, Frame, Loopback, serving, until


def said(text: str) -> AnyEvent:
    return MessageEvent(source="user", llm_message=Message.user(text))


def state(value: AgentState) -> AnyEvent:
    return AgentStateChanged(agent_state=value)


def command(text: str = "ls", *, asks: bool = False) -> AnyEvent:
    return ActionEvent(action=TerminalAction(command=text), tool_name="terminal", awaits_confirmation=asks)


def output(cause: int, **fields: Any) -> AnyEvent:
    return ObservationEvent(
        source="agent", cause=cause, observation=TerminalObservation(), tool_name="terminal", **fields
    )


def brief(frames: list[Frame]) -> list[tuple[Any, ...]]:
    """Id, type and what matters of it."""
    lines: list[tuple[Any, ...]] = []
    for frame in frames:
        name = frame.get("action") or frame.get("observation")
        details = frame.get("args") or frame.get("extras") or {}
        words = [details[key] for key in ("agent_state", "confirmation_state") if key in details]
        lines.append((frame.get("id"), name, *words))
    return lines


def stream_of(loopback: Loopback) -> EventStream:
    stream = loopback.conversations.known["c1"].stream
    assert stream is not None
    return stream


async def test_history_withholds_states_and_says_the_last_one_at_the_end() -> None:
    async with serving() as loopback:
        stream = stream_of(loopback)
        await stream.add_events(
            [
                state(AgentState.LOADING),
                said("hi"),
                RecallAction(recall_type="knowledge", query="hi", cause=1),
                ChangeAgentState(agent_state=AgentState.RUNNING),
                state(AgentState.RUNNING),
                command(),
                output(5),
            ]
        )
        async with loopback.client() as client:
            await stream.add_events([state(AgentState.PAUSED), RecallAction(recall_type="knowledge")])
            await client.until_id(8)
            assert brief(client.frames) == [
                (1, "message"),
                (3, "change_agent_state", "running"),
                (5, "run", "confirmed"),
                (6, "run"),
                (None, "agent_state_changed", "running"),
                (7, "agent_state_changed", "paused"),
                (8, "recall"),
            ]
            assert [frame["source"] for frame in client.frames[1::3]] == ["environment", "environment"]
            assert client.frames[5]["source"] == "agent"


async def test_the_last_state_keeps_its_id_when_nothing_newer_was_sent() -> None:
    async with serving() as loopback:
        await stream_of(loopback).add_events(
            [said("hi"), AgentStateChanged(agent_state=AgentState.ERROR, reason="why")]
        )
        async with loopback.client() as client:
            await until(lambda: len(client.frames) == 2)
            assert client.frames[1]["id"] == 1
            assert client.frames[1]["extras"] == {"agent_state": "error", "reason": "why"}
            assert {"id", "source", "message", "timestamp"} <= set(client.frames[1])


@pytest.mark.parametrize("after", [3, 250, 260])
async def test_a_client_that_comes_back_is_told_the_state_even_if_it_missed_none(after: int) -> None:
    async with serving() as loopback:
        await stream_of(loopback).add_events([state(AgentState.LOADING), state(AgentState.PAUSED)])
        await stream_of(loopback).add_events([said(str(i)) for i in range(2, 251)])
        async with loopback.client(after=after) as client:
            await until(lambda: client.frames and client.frames[-1].get("observation"))
            assert brief(client.frames)[-1] == (None, "agent_state_changed", "paused")
            assert client.ids == list(range(after + 1, 251))


async def test_an_empty_log_sends_nothing_before_its_first_event() -> None:
    async with serving() as loopback, loopback.client() as client:
        await stream_of(loopback).add_event(state(AgentState.LOADING))
        await client.until_id(0)
        assert brief(client.frames) == [(0, "agent_state_changed", "loading")]


async def test_a_question_that_is_open_comes_after_the_state_that_asks_it() -> None:
    async with serving() as loopback:
        asking = [state(AgentState.AWAITING_USER_CONFIRMATION), command("one", asks=True), command("two", asks=True)]
        await stream_of(loopback).add_events([said("hi"), *asking])
        async with loopback.client() as client:
            await client.until_id(3)
            assert brief(client.frames) == [
                (0, "message"),
                (None, "agent_state_changed", "awaiting_user_confirmation"),
                (2, "run", "awaiting_confirmation"),
                (3, "run", "awaiting_confirmation"),
            ]


async def test_a_question_that_was_answered_is_history_like_any_other() -> None:
    async with serving() as loopback:
        stream = stream_of(loopback)
        asked = await stream.add_event(command(asks=True))
        assert isinstance(asked, ActionEvent)
        decision: AnyEvent = ActionDecision(cause=0, decision="confirmed", action=asked)
        await stream.add_events([state(AgentState.AWAITING_USER_CONFIRMATION), decision, output(0, reissued_as=2)])
        await stream.add_event(state(AgentState.RUNNING))
        async with loopback.client() as client:
            await until(lambda: len(client.frames) == 4)
            assert brief(client.frames) == [
                (0, "run", "awaiting_confirmation"),
                (2, "run", "confirmed"),
                (3, "run"),
                (4, "agent_state_changed", "running"),
            ]
            assert client.frames[2]["cause"] == 2


async def test_history_and_present_join_without_gap_or_duplicate_while_others_write() -> None:
    """Many clients connect at random moments and places while events are appended as fast as can be."""
    chance = random.Random(7)
    async with serving() as loopback, AsyncExitStack() as stack:
        stream = stream_of(loopback)
        await stream.add_events([said(str(i)) for i in range(300)])
        places = (-1, 0, 150, 298, 299, 5000, *(chance.randrange(300) for _ in range(6)))
        clients = [(after, await stack.enter_async_context(Client())) for after in places]

        async def write() -> None:
            for i in range(300, 1200, 3):
                await stream.add_events([said(str(i)), said(str(i + 1)), said(str(i + 2))])
                await asyncio.sleep(chance.choice([0, 0, 0, 0.002]))

        async def join(after: int, client: Client) -> int:
            await asyncio.sleep(chance.random() / 2)
            last = stream.last_id
            await client.connect(loopback.url("c1", after))
            return last

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(write())
            joins = [tasks.create_task(join(after, client)) for after, client in clients]
        for (after, client), joined in zip(clients, joins, strict=True):
            await client.until_id(1199)
            seen = client.ids
            assert seen == list(range(seen[0], 1200))
            assert seen[0] == after + 1 if after < 1000 else seen[0] > joined.result()


async def test_a_feed_goes_on_in_the_next_session_of_its_conversation() -> None:
    async with serving() as loopback:
        conversation = loopback.conversations.known["c1"]
        first = stream_of(loopback)
        await first.add_event(said("a"))
        async with loopback.client() as client:
            await client.until_id(0)
            await first.add_event(state(AgentState.STOPPED))
            first.close()
            await until(lambda: len(client.frames) == 3)
            assert client.frames[1]["id"] == 1
            assert client.frames[2] == {
                "message": "",
                "observation": "agent_state_changed",
                "content": "",
                "extras": {"agent_state": "stopped", "reason": ""},
            }
            second = await conversation.open()
            await second.add_event(state(AgentState.LOADING))
            second.close()
            third = await conversation.open()
            await third.add_event(said("b"))
            await client.until_id(3)
            assert brief(client.frames[3:]) == [(2, "agent_state_changed", "loading"), (3, "message")]
            assert client.frames[3]["source"] == "agent"


async def test_a_deleted_conversation_ends_its_connections() -> None:
    async with serving() as loopback:
        conversation = loopback.conversations.known["c1"]
        async with loopback.client() as client:
            await until(lambda: conversation.connections)
            await conversation.delete()
            await until(lambda: not conversation.connections)
            await until(lambda: client.goodbyes)
            # After a "server disconnect" clients would not come back by themselves and hear what is the matter.
            assert client.goodbyes != [client.socket.reason.SERVER_DISCONNECT]


async def test_clients_of_a_server_that_ends_come_back_by_themselves() -> None:
    async with Client() as client:
        async with serving() as loopback:
            await client.connect(loopback.url())
            await until(lambda: loopback.gateway.connection_count)
        await until(lambda: client.goodbyes)
        assert client.goodbyes != [client.socket.reason.SERVER_DISCONNECT]
        assert not loopback.conversations.known["c1"].connections


async def test_a_log_that_cannot_be_read_for_a_moment_is_read_again() -> None:
    async with serving(SocketLimits(read_retry_seconds=(0.01, 0.01))) as loopback:
        await stream_of(loopback).add_events([said(str(i)) for i in range(300)])
        loopback.conversations.store.failures = 2
        async with loopback.client() as client:
            await client.until_id(299)
            assert client.ids == list(range(300))


async def test_a_log_that_cannot_be_read_is_told_and_the_client_may_come_back() -> None:
    async with serving(SocketLimits(read_retry_seconds=(0.01,))) as loopback:
        await stream_of(loopback).add_events([said(str(i)) for i in range(300)])
        loopback.conversations.store.failures = 2
        async with loopback.client() as client:
            await until(lambda: client.goodbyes)
            assert client.problems == ["The disk does not answer."]
        async with loopback.client() as client:
            await client.until_id(299)


async def test_an_event_that_cannot_be_shown_hides_no_other() -> None:
    async with serving() as loopback:
        broken = ForeignEvent(source="agent", name="run", is_action=False, payload={"content": "", "extras": 5})
        await stream_of(loopback).add_events([said("a"), broken, said("b")])
        async with loopback.client() as client:
            await client.until_id(2)
            assert client.ids == [0, 2]


async def test_notices_keep_their_place_between_events() -> None:
    async with serving() as loopback, loopback.client() as client:
        stream = stream_of(loopback)
        await until(lambda: loopback.conversations.known["c1"].connections)
        await stream.add_event(said("go"))
        await client.until_id(0)
        asked = await stream.add_event(command(asks=True))
        assert isinstance(asked, ActionEvent)
        await stream.add_event(ActionDecision(cause=asked.id, decision="confirmed", action=asked))
        stream.publish(StatusNotice("STATUS$STARTING_RUNTIME", ""))
        stream.publish(StatusNotice("STATUS$ERROR", "It failed.", "error"))
        stream.publish(TextDelta("r1", "Hel"))
        stream.publish(TextDelta("r1", "lo"))
        stream.publish(TextDelta("r1", "hm", "reasoning"))
        stream.publish(TextDiscarded("r1"))
        stream.publish(OutputDelta(asked.id, "a.txt\n"))
        stream.publish(OutputDelta(77, "b.txt\n"))
        await stream.add_event(said("end"))
        await client.until_id(3)
        info, error = client.frames[3:5]
        assert info == {"status_update": True, "type": "info", "id": "STATUS$STARTING_RUNTIME", "message": ""}
        assert error.pop("timestamp").endswith("Z")
        assert error == {
            "status_update": True,
            "type": "error",
            "id": "STATUS$ERROR",
            "docs": "/errors/STATUS$ERROR",
            "message": "It failed.",
            "source": "environment",
        }
        assert client.deltas == [
            {"kind": "message", "response_id": "r1", "text": "Hello"},
            {"kind": "reasoning", "response_id": "r1", "text": "hm"},
            {"kind": "discard", "response_id": "r1"},
            {"kind": "output", "cause": 2, "text": "a.txt\n"},
            {"kind": "output", "cause": 77, "text": "b.txt\n"},
        ]


async def test_a_client_that_comes_in_the_middle_is_told_what_is_under_way() -> None:
    async with serving() as loopback:
        stream = stream_of(loopback)
        stream.publish(StatusNotice("STATUS$STARTING_RUNTIME", "Fetching the image"))
        await stream.add_events([said("go"), command("make"), command("ls")])
        for text in ("one\n", "two\n"):
            stream.publish(OutputDelta(1, text))
        stream.publish(OutputDelta(2, "a.txt\n"))
        stream.publish(TextDelta("r0", "An older answer"))
        stream.publish(TextDelta("r1", "Hel"))
        stream.publish(TextDelta("r1", "lo"))
        await stream.add_event(output(2))
        async with loopback.client() as client:
            await client.until_id(3)
            await until(lambda: len(client.deltas) == 2)
            stream.publish(OutputDelta(1, "three\n"))
            await until(lambda: len(client.deltas) == 3)
        assert client.frames[-1]["message"] == "Fetching the image"
        assert client.deltas == [
            {"kind": "message", "response_id": "r1", "text": "Hello"},
            {"kind": "output", "cause": 1, "text": "one\ntwo\n"},
            {"kind": "output", "cause": 1, "text": "three\n"},
        ]


async def test_clients_are_told_of_the_calls_that_they_are_to_carry_out_also_those_that_come_later() -> None:
    async with serving() as loopback:
        stream = stream_of(loopback)
        call = ActionEvent(action=ClientToolAction(data={"x": 1}), tool_name="ask", awaits_confirmation=True)
        asked = await stream.add_event(call)
        assert isinstance(asked, ActionEvent)
        again = await stream.add_event(ActionDecision(cause=asked.id, decision="confirmed", action=asked))
        deadline = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
        stream.publish(ClientCall(asked.id, "ask", {"x": 1}, deadline))
        stream.publish(ClientCall(77, "ask", {}, deadline))
        stream.publish(ClientCall(77, "ask", is_over=True))
        async with loopback.client() as client:
            await until(lambda: len(client.calls) == 1)
            stream.publish(ClientCall(asked.id, "ask", is_over=True))
            await until(lambda: len(client.calls) == 2)
        when = "2026-01-02T03:04:05.000000Z"
        assert client.calls == [
            {"call_id": again.id, "name": "ask", "arguments": {"x": 1}, "deadline": when, "is_over": False},
            {"call_id": again.id, "name": "ask", "is_over": True},
        ]


async def test_what_is_no_longer_under_way_is_not_told_again() -> None:
    async with serving() as loopback:
        stream = stream_of(loopback)
        stream.publish(StatusNotice("STATUS$STARTING_RUNTIME", ""))
        stream.publish(StatusNotice("STATUS$READY", ""))
        stream.publish(StatusNotice("STATUS$LLM_RETRY", "Retrying"))
        await stream.add_event(command())
        stream.publish(OutputDelta(0, "x" * 100_000))
        stream.publish(TextDelta("r1", "Hello"))
        await stream.add_events([output(0), command()])
        stream.publish(TextDelta("r2", "Hm"))
        stream.publish(TextDiscarded("r2"))
        async with loopback.client() as client:
            await client.until_id(2)
            await stream.add_event(said("end"))
            await client.until_id(3)
        assert client.deltas == []
        assert [frame["id"] for frame in client.frames] == [0, 1, 2, 3]


async def test_a_session_that_could_not_be_started_is_told_in_one_error_frame_and_one_status() -> None:
    async with serving() as loopback, loopback.client() as client:
        await until(lambda: loopback.conversations.known["c1"].connections)
        await stream_of(loopback).add_event(said("go"))
        await client.until_id(0)
        stream_of(loopback).publish(StatusNotice("STATUS$ERROR", "No water.", "error", start_failed=True))
        await until(lambda: len(client.frames) == 3)
        failed = {"error": True, "message": "Failed to create agent session: No water."}
        assert client.frames[1] == {**failed, **coded_page("STATUS$ERROR")}
        assert client.frames[2]["type"] == "error"
        assert client.frames[2]["message"] == "No water."


async def test_a_new_title_is_told_to_the_conversations_clients_only() -> None:
    async with serving() as loopback:
        await loopback.conversations.create("c2")
        async with loopback.client("c1") as first, loopback.client("c2") as second:
            await until(lambda: loopback.gateway.connection_count == 2)
            await loopback.gateway.announce_title("c1", "Mend the roof")
            await loopback.gateway.announce_title("c2", "Paint the door")
            await until(lambda: first.frames and second.frames)
            assert first.frames == [
                {"status_update": True, "type": "info", "message": "c1", "conversation_title": "Mend the roof"}
            ]
            assert [frame["conversation_title"] for frame in second.frames] == ["Paint the door"]


async def test_clients_are_told_that_their_conversation_was_deleted_also_one_that_does_not_run() -> None:
    farewell = StatusNotice("CONVERSATION$NOT_FOUND", "The conversation was deleted.", "error")
    async with serving() as loopback:
        conversation = loopback.conversations.known["c1"]
        async with loopback.client() as client:
            await until(lambda: conversation.connections)
            assert conversation.stream is not None
            conversation.stream.close()
            await conversation.delete(farewell)
            await until(lambda: client.goodbyes)
            told = {key: client.frames[-1][key] for key in ("status_update", "type", "id", "message", "source")}
    assert told == {
        "status_update": True,
        "type": "error",
        "id": "CONVERSATION$NOT_FOUND",
        "message": "The conversation was deleted.",
        "source": "environment",
    }
