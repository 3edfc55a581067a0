"""What clients send, good and bad: taken in order, or answered in words."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from agent_core.errors import EventStoreError
from agent_core.events.llm_events import MessageEvent
from server.errors import coded_page
from server.sockets.connections import SocketLimits
from server.sockets.gateway import MAX_UNHEARD
from tests.contract.sockets.loopback import Client, packet, serving, until
from tests.waiting import ticks


def message(text: str) -> dict[str, Any]:
    return {"action": "message", "args": {"content": text, "image_urls": [], "file_urls": []}}


@pytest.mark.parametrize("event", ["oh_user_action", "oh_action"])
async def test_a_message_is_stored_and_echoed_to_everybody(event: str) -> None:
    async with serving() as loopback, loopback.client() as sender, loopback.client() as other:
        await sender.send(message("hi"), event=event)
        await sender.until_id(0)
        await other.until_id(0)
        assert sender.frames == other.frames
        assert (sender.frames[0]["source"], sender.frames[0]["message"]) == ("user", "hi")
        assert isinstance(loopback.conversations.sent[0], MessageEvent)


async def test_messages_of_one_client_are_taken_in_their_order() -> None:
    async with serving() as loopback, loopback.client() as client:
        for number in range(200):
            await client.send(message(str(number)))
        await client.until_id(199)
        assert [frame["message"] for frame in client.frames] == [str(number) for number in range(200)]


@pytest.mark.parametrize(
    ("event", "data", "problem"),
    [
        ("oh_user_action", {"action": "initialize"}, "action 'initialize' is unknown"),
        ("oh_user_action", [1], "the message is a list"),
        ("oh_user_action", "text", "the message is a text"),
        ("oh_user_action", None, "oh_user_action came with 0 arguments"),
        ("oh_user_action", ({}, {}), "oh_user_action came with 2 arguments"),
        ("oh_user_action", b"bytes", "the message is binary"),
        (
            "oh_user_action",
            {"action": "message", "args": {"content": 1}},
            "args.content: input should be a valid string",
        ),
        ("shout", {}, "event 'shout' is unknown; send oh_user_action"),
        ("message", {}, "event 'message' is unknown; send oh_user_action"),
    ],
)
async def test_a_bad_message_is_answered_and_the_connection_stays(event: str, data: Any, problem: str) -> None:
    async with serving() as loopback, loopback.client() as client:
        await client.send(data, event=event)
        await until(lambda: len(client.frames) >= 2)
        assert client.problems[0].startswith(problem)
        error, status = client.frames[:2]
        assert error == {"error": True, "message": client.problems[0], **coded_page("invalid_message")}
        assert status.pop("timestamp").endswith("Z")
        assert status == {
            "status_update": True,
            "type": "error",
            "id": "STATUS$ERROR",
            "message": client.problems[0],
            "source": "environment",
            **coded_page("invalid_message"),
        }
        await client.send(message("still here"))
        await client.until_id(0)
        assert len(loopback.conversations.sent) == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('42["oh_user_action",{"action":', "the message cannot be read: "),
        ('42["oh_user_action",' + '{"a":' * 5000 + "1" + "}" * 5000 + "]", "the message cannot be read: "),
        ('42["oh_user_action",{"action":"message","args":{"content":"\\ud800"}}]', "args.content contains half a char"),
        ('42["oh_user_action",{"action":"message","args":{"content":NaN}}]', "args.content is not a finite number; "),
        ('42["oh_user_action",{"action":"message","args":{"content":"\\u0000"}}]', "args.content contains a NUL"),
        ('42["oh_user_action",{"action":"message","args":{"content":1e999}}]', "args.content is not a finite number; "),
        ('42{"a":1}', "the message is no event"),
        ("42[]", "the message is no event"),
        ("42[7]", "the message is no event"),
        ("42", "the message is no event"),
        ("4", "the message is no event"),
        ('4{"a":1}', "the message is binary"),
        ('451-["oh_user_action",{"_placeholder":true,"num":0}]', "the message is binary"),
        ('4599999999999-["x"]', "the message "),
        (b"\x00\x01", "the message is binary"),
        ('42["connect",{}]', "event 'connect' is reserved"),
        ("44{}", "the packet is of no type"),
        ("43[1]", "the packet is of no type"),
        ("49", "the packet is of no type"),
    ],
)
async def test_what_is_no_message_at_all_is_answered_too(text: str | bytes, problem: str) -> None:
    async with serving() as loopback, loopback.raw("conversation_id=c1") as socket:
        await socket.send("40")
        await socket.recv()
        await socket.send(text)
        assert packet(await socket.recv())["message"].startswith(problem)
        assert packet(await socket.recv())["status_update"] is True
        await socket.send("42" + json.dumps(["oh_user_action", message("still here")]))
        assert packet(await socket.recv())["message"] == "still here"


@pytest.mark.parametrize("text", ["43", "46", "40", "40/other,", '42/other,["oh_user_action",{}]', "4x"])
async def test_odd_packets_harm_nobody(text: str) -> None:
    async with serving() as loopback, loopback.client() as other, loopback.raw("conversation_id=c1") as socket:
        await socket.send("40")
        await socket.recv()
        await socket.send(text)
        await socket.send("42" + json.dumps(["oh_user_action", message("still here")]))
        await other.until_id(0)
        assert loopback.gateway.connection_count == 2


async def test_a_message_over_the_limit_is_refused_in_words() -> None:
    limits = SocketLimits(max_message_bytes=100_000)
    async with serving(limits) as loopback, loopback.client() as client:
        for size in (99_000, 101_000, 350_000):
            await client.send(message("x" * size))
        await until(lambda: len(client.problems) == 2)
        problem = (
            "the message is larger than the 100000 bytes that this server takes; send less, or upload it as a file"
        )
        assert client.problems == [problem, problem]
        assert client.ids == [0]


async def test_a_message_far_over_the_limit_ends_its_connection_only() -> None:
    limits = SocketLimits(max_message_bytes=100_000)
    async with serving(limits) as loopback, loopback.client() as other:
        async with loopback.client() as client:
            await client.send(message("x" * 1_000_000))
            await until(lambda: not client.socket.connected)
        await other.send(message("still here"))
        await other.until_id(0)


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (EventStoreError("The disk is full; make room."), "The disk is full; make room."),
        (TimeoutError(), "The message was not taken in time; look whether it is there before you send it again."),
        (TypeError("a bug"), "The server failed to take the message; its log says why."),
    ],
)
async def test_a_message_that_cannot_be_taken_is_not_silently_lost(error: Exception, problem: str) -> None:
    async with serving() as loopback, loopback.client() as client:
        loopback.conversations.refusal = error
        await client.send(message("hi"))
        await until(lambda: client.problems)
        assert client.problems == [problem]


async def test_an_acknowledgement_is_given_to_whoever_asks_for_one() -> None:
    async with serving() as loopback, loopback.client() as client:
        async with asyncio.timeout(30):
            taken = await client.socket.call("oh_user_action", message("hi"))
            refused = await client.socket.call("oh_user_action", {"action": "initialize"})
        assert taken == {"success": True, "id": 0}
        assert refused == {"success": False, "error": client.problems[0], **coded_page("invalid_message")}
        assert len(loopback.conversations.sent) == 1


async def test_what_is_sent_under_a_key_is_echoed_with_it() -> None:
    async with serving() as loopback, loopback.client() as client:
        await client.send({**message("hi"), "idempotency_key": "k-1"})
        await client.send(message("ho"))
        await client.until_id(1)
        assert [frame.get("idempotency_key") for frame in client.frames] == ["k-1", None]
        assert [event.client_key for event in loopback.conversations.sent] == ["k-1", None]


async def test_a_client_that_left_can_say_nothing_more() -> None:
    async with serving() as loopback, loopback.raw("conversation_id=c1") as socket:
        await socket.send("40")
        await socket.recv()
        await socket.send("41")
        await socket.send("42" + json.dumps(["oh_user_action", message("late")]))
        async with Client() as other:
            await other.connect(loopback.url())
            await until(lambda: loopback.gateway.connection_count == 1)
            await other.send(message("hi"))
            await other.until_id(0)
            assert [frame["message"] for frame in other.frames] == ["hi"]


@pytest.mark.parametrize("before", [[], ["40"]])
async def test_an_event_of_a_socket_that_has_joined_nothing_is_answered(before: list[str]) -> None:
    async with serving() as loopback, loopback.raw("conversation_id=none") as socket:
        [transport_id] = loopback.gateway._server.eio.sockets
        for text in before:
            await socket.send(text)
            assert str(await socket.recv()).startswith("44")
        await socket.send("427" + json.dumps(["oh_user_action", message("hello?")]))
        problem = f"no_connected_session:{transport_id}"
        assert packet(await socket.recv()) == {"error": True, "message": problem, **coded_page("no_connected_session")}
        status = packet(await socket.recv())
        assert (status["status_update"], status["type"], status["message"]) == (True, "error", problem)
        answer = {"success": False, "error": problem, **coded_page("no_connected_session")}
        assert await socket.recv() == "437" + json.dumps([answer], separators=(",", ":"))
    assert not loopback.conversations.sent


async def test_who_has_joined_nothing_and_does_not_listen_is_answered_so_often_and_no_more() -> None:
    async with serving() as loopback, loopback.raw("conversation_id=none", max_queue=None) as socket:
        [transport] = loopback.gateway._server.eio.sockets.values()
        socket.transport.pause_reading()
        for _ in range(MAX_UNHEARD * 5):
            await socket.send('42["oh_user_action",{}]')
        await socket.send("40")
        await ticks(200)
        assert transport.queue.qsize() <= MAX_UNHEARD + 3
        socket.transport.resume_reading()


async def test_an_event_for_a_conversation_that_is_gone_is_answered_so() -> None:
    async with serving() as loopback, loopback.client() as client:
        await until(lambda: loopback.conversations.known["c1"].connections)
        del loopback.conversations.known["c1"]
        answer = await client.socket.call("oh_user_action", message("hello?"))
        page = coded_page("CONVERSATION$NOT_FOUND")
        assert answer == {"success": False, "error": "no_conversation:c1", **page}
        await until(lambda: len(client.frames) == 2)
        assert client.frames[0] == {"error": True, "message": "no_conversation:c1", **page}
