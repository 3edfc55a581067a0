"""Who may connect, and what everybody else is told."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from httpx import AsyncClient

from agent_core.errors import EventStoreError
from agent_core.events.control import AgentState, AgentStateChanged
from agent_core.events.llm_events import MessageEvent
from agent_core.events.messages import Message
from agent_core.events.serialization import AnyEvent
from server.errors import ConversationNotFoundError, coded_page
from server.http.turnstile import Turnstile
from server.sockets.connections import SocketLimits
from server.sockets.conversations import JoinRefusedError
from tests.contract.sockets.loopback import Client, packet, refusal_of, serving, until

KEY = "correct-horse"


NOT_FOUND = {"msg_id": "CONVERSATION$NOT_FOUND", **coded_page("CONVERSATION$NOT_FOUND")}


def said(text: str) -> AnyEvent:
    return MessageEvent(source="user", llm_message=Message.user(text))


@pytest.mark.parametrize(
    ("conversation_id", "query", "told"),
    [
        (None, {}, {"message": "No conversation_id in query params", "data": coded_page("invalid_handshake")}),
        ("", {}, {"message": "No conversation_id in query params", "data": coded_page("invalid_handshake")}),
        ("c2", {}, {"message": "Conversation c2 not found", "data": NOT_FOUND}),
        ("../c1", {}, {"message": "Conversation ../c1 not found", "data": NOT_FOUND}),
        (
            "c1",
            {"providers_set": "github,nohub"},
            {
                "message": "providers_set names 'nohub', which is no provider; "
                "known are github, gitlab, bitbucket, enterprise_sso, azure_devops, forgejo",
                "data": coded_page("invalid_handshake"),
            },
        ),
    ],
)
async def test_a_refused_client_is_told_why(conversation_id: str | None, query: dict[str, str], told: object) -> None:
    async with serving() as loopback:
        assert await refusal_of(loopback, loopback.url(conversation_id, **query)) == told
        assert loopback.gateway.connection_count == 0


async def test_every_provider_that_a_user_may_have_is_known_and_may_be_named_in_any_way() -> None:
    async with serving() as loopback:
        names = (
            "github,gitlab,,bitbucket&providers_set=enterprise_sso,azure_devops&providers_set=forgejo&providers_set="
        )
        async with loopback.raw(f"conversation_id=c1&providers_set={names}") as socket:
            await socket.send("40")
            assert str(await socket.recv()).startswith('40{"sid":')


@pytest.mark.parametrize(
    ("query", "headers", "is_welcome"),
    [
        ({"session_api_key": KEY}, {}, True),
        ({}, {"X-Session-API-Key": KEY}, True),
        ({"session_api_key": "null"}, {"Authorization": f"Bearer {KEY}"}, True),
        ({"session_api_key": "wrong"}, {"X-Session-API-Key": KEY}, False),
        ({"session_api_key": "null"}, {}, False),
        ({"session_api_key": "undefined"}, {}, False),
        ({"session_api_key": ""}, {}, False),
        ({}, {}, False),
    ],
)
async def test_a_server_with_a_token_asks_for_it(
    query: dict[str, str], headers: dict[str, str], *, is_welcome: bool
) -> None:
    async with serving(token=KEY) as loopback:
        url = loopback.url("c1", **query)
        if is_welcome:
            async with Client() as client:
                await client.connect(url, headers=headers)
        else:
            told = await refusal_of(loopback, url, headers=headers)
            assert told == {"message": "invalid_session_api_key", "data": coded_page("invalid_api_key")}


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            JoinRefusedError("replay_limit is no number", code="invalid_handshake"),
            {"message": "replay_limit is no number", "data": coded_page("invalid_handshake")},
        ),
        (
            ConversationNotFoundError("c1"),
            {"message": "Conversation c1 not found", "data": NOT_FOUND},
        ),
        (EventStoreError("Who knows."), {"message": "Who knows."}),
        (
            EventStoreError("The disk is full.", code="disk_full"),
            {"message": "The disk is full.", "data": coded_page("disk_full")},
        ),
        (
            TimeoutError(),
            {"message": "The conversation does not answer; try again in a moment", "data": coded_page("no_answer")},
        ),
        (
            TypeError("a bug"),
            {"message": "The server failed to connect you; its log says why", "data": coded_page("unexpected_error")},
        ),
    ],
)
async def test_a_failure_while_joining_is_a_refusal_and_never_a_hang(error: Exception, told: object) -> None:
    async with serving() as loopback:
        loopback.conversations.refusal = error
        assert await refusal_of(loopback, loopback.url()) == told


@pytest.mark.parametrize(
    ("after", "ids"),
    [
        ("-1", [0, 1, 2]),
        ("0", [1, 2]),
        ("2", []),
        ("3", []),
        ("1000000", []),
        ("9" * 60, []),
        ("-7", [0, 1, 2]),
        ("undefined", [0, 1, 2]),
        ("", [0, 1, 2]),
        ("1.5", [0, 1, 2]),
        ("²", [0, 1, 2]),
    ],
)
async def test_the_history_begins_after_the_event_that_the_client_has(after: str, ids: list[int]) -> None:
    async with serving() as loopback:
        stream = loopback.conversations.known["c1"].stream
        assert stream is not None
        await stream.add_events([said("a"), said("b"), said("c")])
        async with loopback.client(after=after) as client:
            await stream.add_event(said("live"))
            await client.until_id(3)
            assert client.ids == [*ids, 3]


async def test_the_connection_is_confirmed_before_the_first_event() -> None:
    async with serving() as loopback:
        stream = loopback.conversations.known["c1"].stream
        assert stream is not None
        await stream.add_event(said("a"))
        async with loopback.raw("conversation_id=c1&latest_event_id=-1") as socket:
            await socket.send("40")
            first, second = await socket.recv(), await socket.recv()
            assert isinstance(first, str)
            assert list(json.loads(first.removeprefix("40"))) == ["sid"]
            assert packet(second)["id"] == 0


async def test_a_polling_client_gets_the_same() -> None:
    async with serving(SocketLimits(ping_interval_seconds=1, ping_timeout_seconds=1)) as loopback:
        stream = loopback.conversations.known["c1"].stream
        assert stream is not None
        await stream.add_event(said("a"))
        async with Client(transports=("polling",)) as client:
            await client.connect(loopback.url())
            await client.send({"action": "message", "args": {"content": "b"}})
            await client.until_id(1)
            assert [frame["message"] for frame in client.frames] == ["a", "b"]


@pytest.mark.parametrize("joins_first", [True, False])
async def test_a_client_that_polls_first_stays_when_it_goes_on_over_a_websocket(*, joins_first: bool) -> None:
    async with serving(SocketLimits(handshake_seconds=0.8)) as loopback:
        if joins_first:
            async with Client(transports=("polling", "websocket")) as client:
                await client.connect(loopback.url())
                assert client.socket.transport() == "websocket"
                await asyncio.sleep(1.1)
                await client.send({"action": "message", "args": {"content": "b"}})
                await client.until_id(0)
        else:
            query = "conversation_id=c1&latest_event_id=-1"
            async with AsyncClient(base_url=f"http://127.0.0.1:{loopback.port}") as http:
                greeting = (await http.get(f"/socket.io/?EIO=4&transport=polling&{query}")).text
            async with loopback.upgraded(json.loads(greeting[1:])["sid"]) as socket:
                await socket.send("40")
                assert str(await socket.recv()).startswith("40")
                await asyncio.sleep(1.1)
                await socket.send('42["oh_user_action",{"action":"message","args":{"content":"still here"}}]')
                assert packet(await socket.recv())["message"] == "still here"


async def test_several_connections_of_one_client_are_fed_alike_and_leave_alone() -> None:
    async with serving() as loopback:
        conversation = loopback.conversations.known["c1"]
        assert conversation.stream is not None
        async with loopback.client() as first:
            async with loopback.client() as second:
                assert len(conversation.connections) == 2
                await conversation.stream.add_event(AgentStateChanged(agent_state=AgentState.RUNNING))
                await first.until_id(0)
                await second.until_id(0)
                assert first.frames == second.frames
            await until(lambda: len(conversation.connections) == 1)
        await until(lambda: not conversation.connections)
        assert loopback.gateway.connection_count == 0


async def test_whoever_joins_no_conversation_is_shown_out() -> None:
    async with serving(SocketLimits(handshake_seconds=0.2)) as loopback, loopback.raw() as idle:
        async with loopback.raw("conversation_id=none") as refused:
            await refused.send("40")
            assert str(await refused.recv()).startswith('44{"message":"Conversation none not found"')
            async with loopback.raw("conversation_id=c1") as joined:
                await joined.send("40")
                await joined.recv()
                async with asyncio.timeout(30):
                    await idle.wait_closed()
                    await refused.wait_closed()
                await joined.send('42["oh_user_action",{"action":"message","args":{"content":"still here"}}]')
                assert packet(await joined.recv())["message"] == "still here"
                await joined.send("41")
                async with asyncio.timeout(30):
                    await joined.wait_closed()
        assert not loopback.conversations.known["c1"].connections


@pytest.mark.parametrize("name", ["connect", "disconnect", "*"])
async def test_a_client_cannot_call_the_librarys_own_handlers(name: str) -> None:
    async with serving(token=KEY) as loopback:
        await loopback.conversations.create("secret")
        async with loopback.client(session_api_key=KEY) as client:
            forged: Any = {"QUERY_STRING": f"conversation_id=secret&session_api_key={KEY}", "asgi.scope": {}}
            await client.send(forged, event=name)
            await until(lambda: client.problems)
            assert client.problems == [f"event {name!r} is reserved; send oh_user_action"]
        assert not loopback.conversations.known["secret"].connections


async def test_who_waits_for_its_turn_to_join_is_not_shown_out_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where many come at once the wait may be longer than the time in which a client has to ask."""
    turns = asyncio.Event()

    async def wait(_turnstile: Turnstile) -> None:
        await turns.wait()

    async with serving(SocketLimits(handshake_seconds=0.2)) as loopback:
        monkeypatch.setattr(Turnstile, "pass_through", wait)
        async with loopback.raw("conversation_id=c1") as waiting, loopback.raw("conversation_id=none") as refused:
            for client in (waiting, refused):
                await client.send("40")
            await asyncio.sleep(0.5)
            turns.set()
            assert str(await waiting.recv()).startswith("40")
            assert str(await refused.recv()).startswith("44")
            async with asyncio.timeout(30):
                await refused.wait_closed()  # its time runs again
