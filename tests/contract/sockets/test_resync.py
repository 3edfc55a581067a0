"""Clients that fell behind are told from where to read; clients that know nothing of it are sent everything."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from agent_core.events.control import AgentState, AgentStateChanged
from agent_core.events.llm_events import ActionEvent, MessageEvent, ObservationEvent
from agent_core.events.messages import Message
from agent_core.events.serialization import AnyEvent
from agent_core.events.stream import EventStream
from agent_core.events.transient import OutputDelta, TextDelta
from agent_core.tools.terminal import TerminalAction, TerminalObservation
from server.sockets.connections import SocketLimits
from server.sockets.feed import LOST
from server.wire.envelope import wire_time
from tests.contract.sockets.loopback import Loopback, refusal_of, serving, until
from tests.contract.sockets.test_slow_clients import slow_client


def said(text: str) -> AnyEvent:
    return MessageEvent(source="user", llm_message=Message.user(text))


def stream_of(loopback: Loopback) -> EventStream:
    stream = loopback.conversations.known["c1"].stream
    assert stream is not None
    return stream


async def fill(loopback: Loopback, count: int) -> EventStream:
    stream = stream_of(loopback)
    await stream.add_events([said(str(number)) for number in range(count)])
    return stream


@pytest.mark.parametrize(("count", "after"), [(5, 5), (5, 1_000_000), (0, 0), (0, 7)])
async def test_a_position_beyond_the_log_is_told_with_what_there_is_to_read(count: int, after: int) -> None:
    """The server was reset, or came back from a backup: what the client has is not from this log."""
    async with serving() as loopback:
        stream = await fill(loopback, count)
        async with loopback.client(after=after) as client:
            await until(lambda: client.resyncs)
            assert client.resyncs == [
                {"reason": "unknown_position", "latest_event_id": after, "start_id": 0, "end_id": count - 1}
            ]
            await stream.add_event(said("live"))
            await client.until_id(count)
            assert client.ids == [count]
            assert [frame["message"] for frame in client.frames if frame.get("error")] == [LOST], (
                "in words, for old ones"
            )


async def test_a_log_that_has_another_event_at_the_position_is_told_and_the_same_one_needs_no_word() -> None:
    """Its end was lost, and it has grown beyond the client's position again."""
    async with serving() as loopback:
        stream = await fill(loopback, 5)
        (event,) = await stream.page_before(before=4, limit=1)
        seen_at = wire_time(event.timestamp)
        async with loopback.client(after=3, latest_event_timestamp=seen_at) as same:
            await same.until_id(4)
            assert same.resyncs == []
        async with loopback.client(after=3, latest_event_timestamp="2026-01-01T00:00:00.000000Z") as other:
            await until(lambda: other.resyncs)
            assert other.resyncs == [{"reason": "unknown_position", "latest_event_id": 3, "start_id": 0, "end_id": 4}]
            await stream.add_event(said("live"))
            await other.until_id(5)
            assert other.ids == [5]


@pytest.mark.parametrize("after", [-1, 0, 3, 4])
async def test_a_position_in_the_log_needs_no_word(after: int) -> None:
    async with serving() as loopback:
        stream = await fill(loopback, 5)
        async with loopback.client(after=after) as client:
            await stream.add_event(said("live"))
            await client.until_id(5)
            assert client.resyncs == []
            assert client.ids == list(range(after + 1, 6))


async def test_a_client_that_wants_no_long_replay_is_sent_the_end_and_told_what_comes_before() -> None:
    async with serving() as loopback:
        stream = stream_of(loopback)
        await stream.add_events([said("0"), AgentStateChanged(agent_state=AgentState.PAUSED)])
        await fill(loopback, 300)
        async with loopback.client(after=9, replay_limit="20") as client:
            await until(lambda: client.frames and client.frames[-1].get("observation"))
            assert client.resyncs == [{"reason": "too_far_behind", "latest_event_id": 9, "start_id": 10, "end_id": 281}]
            assert client.ids == list(range(282, 302))
            assert client.frames[-1]["extras"]["agent_state"] == "paused"
            await stream.add_event(said("live"))
            await client.until_id(302)


@pytest.mark.parametrize("limit", ["20", "21", "100000", "null", "undefined", ""])
async def test_who_is_not_so_far_behind_is_sent_everything(limit: str) -> None:
    async with serving() as loopback:
        await fill(loopback, 20)
        async with loopback.client(replay_limit=limit) as client:
            await client.until_id(19)
            assert client.ids == list(range(20))
            assert client.resyncs == []


@pytest.mark.parametrize("limit", ["0", "-1", "1.5", "many", "1e3"])
async def test_a_limit_that_makes_no_sense_is_refused(limit: str) -> None:
    async with serving() as loopback:
        told: Any = await refusal_of(loopback, loopback.url(replay_limit=limit))
        assert told["message"] == "replay_limit is no number of events; send 1 or more, or leave it out"
        assert told["data"]["code"] == "invalid_handshake"


async def test_a_client_that_falls_behind_while_it_is_connected_goes_on_near_the_end() -> None:
    """It reads nothing for a while; what is under way is then told anew, as to one that comes in the middle."""
    async with serving(SocketLimits(max_buffer_bytes=4096)) as loopback:
        stream = stream_of(loopback)
        query = "conversation_id=c1&latest_event_id=-1&replay_limit=10"
        async with slow_client(loopback, query) as slow:
            await slow.recv()
            await stream.add_event(ActionEvent(action=TerminalAction(command="make"), tool_name="terminal"))
            text = TerminalObservation.from_text("x" * 200_000)
            for number in range(50):
                await stream.add_event(
                    ObservationEvent(source="agent", cause=99, observation=text, tool_name="terminal")
                )
                stream.publish(OutputDelta(0, f"line {number}\n"))
            stream.publish(TextDelta("r1", "Hello"))
            last = await stream.add_event(said("last"))
            seen: list[tuple[str, Any]] = []

            def of(name: str) -> list[Any]:
                return [frame for found, frame in seen if found == name]

            def output() -> str:
                """The output of the command, as a client has it that forgets what it had when it is told to."""
                text = ""
                for name, frame in seen:
                    if name == "oh_resync":
                        text = ""
                    elif frame.get("kind") == "output":
                        text += frame["text"]
                return text

            async with asyncio.timeout(60):
                while not (
                    output().endswith("line 49\n") and any(frame.get("id") == last.id for frame in of("oh_event"))
                ):
                    packet = str(await slow.recv())
                    if packet.startswith("42"):
                        name, frame = json.loads(packet[2:])
                        seen.append((name, frame))
        ids = [frame["id"] for frame in of("oh_event") if "id" in frame]
        left_out = {n for frame in of("oh_resync") for n in range(frame["start_id"], frame["end_id"] + 1)}
        assert {frame["reason"] for frame in of("oh_resync")} == {"too_far_behind"}
        assert ids == [number for number in range(last.id + 1) if number not in left_out]
        assert output() == "".join(f"line {number}\n" for number in range(50))
        assert {"kind": "message", "response_id": "r1", "text": "Hello"} in of("oh_delta")


async def test_a_log_that_is_shorter_in_its_next_session_is_told_too() -> None:
    async with serving() as loopback:
        stream = await fill(loopback, 5)
        async with loopback.client() as client:
            await client.until_id(4)
            stream.close()
            await loopback.conversations.store.delete("c1")
            again = await loopback.conversations.known["c1"].open()
            await until(lambda: client.resyncs)
            assert client.resyncs == [{"reason": "unknown_position", "latest_event_id": 4, "start_id": 0, "end_id": -1}]
            await again.add_event(said("anew"))
            await until(lambda: client.ids[-1] == 0)
