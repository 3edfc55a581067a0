"""Following: a cursor across broken connections, whatever the server sends."""

from __future__ import annotations

import asyncio

import pytest
from starlette.responses import JSONResponse

from agent_core.events.llm_events import MessageEvent
from agent_core.events.messages import Message
from drydock_client import (
    Action,
    Connected,
    DrydockClient,
    KeyRefusedError,
    LimitError,
    Live,
    NotFoundError,
    Observation,
    OutputDelta,
    Problem,
    RefusedError,
    Resync,
    State,
    Status,
    TextDelta,
    TextDiscarded,
    ToolCall,
    Unknown,
    UnreachableError,
)
from tests.contract.client.conftest import JOINED, OPENING, Played, event, frame, state, taken, until
from tests.contract.sockets.loopback import serving

UP = [OPENING, JOINED]


def ids(items: list[Live]) -> list[int | None]:
    return [item.id for item in items if isinstance(item, Action | Observation | State)]


async def test_a_connection_that_breaks_is_taken_up_behind_the_last_event(
    played: Played, client: DrydockClient
) -> None:
    played.lines = [
        [*UP, event(0), event(2)],
        [*UP, event(2), event(3), event(3)],  # what was seen already does not come again
        [],
        [*UP, event(4)],
    ]
    async with client.follow("c1", live=True) as items:
        found = await taken(items, 7)
        assert ids(found) == [0, 2, 3, 4]
        assert [item.again for item in found if isinstance(item, Connected)] == [False, True, True]
        assert items.position == 4
    assert [asked for asked in played.asked if asked.startswith("LINE")] == ["LINE -1", "LINE 2", "LINE 3", "LINE 3"]
    await until(lambda: played.open_lines == 0)


async def test_states_that_are_told_again_or_out_of_turn_hide_nothing(played: Played, client: DrydockClient) -> None:
    played.lines = [
        [*UP, event(1), state(4, "awaiting_user_confirmation"), event(3)],  # a question comes behind its state
        [*UP, event(5), state(None, "awaiting_user_confirmation")],  # told again on connecting
        [*UP, state(7, "running"), event(6), state(None, "stopped")],
    ]
    async with client.follow("c1", after=0) as items:
        found = await taken(items, 7)
    assert ids(found) == [1, 4, 3, 5, 7, 6, None]
    assert [str(item.state) for item in found if isinstance(item, State)] == [
        "awaiting_user_confirmation",
        "running",
        "stopped",
    ]


async def test_everything_that_is_live_has_a_type_and_what_is_new_is_kept(
    played: Played, client: DrydockClient
) -> None:
    played.lines = [
        [
            *UP,
            frame("oh_event", {"status_update": True, "type": "info", "id": "STATUS$READY", "message": "", "more": 1}),
            frame("oh_event", {"error": True, "message": "no"}),
            frame("oh_delta", {"kind": "message", "response_id": "r", "text": "Hel"}),
            frame("oh_delta", {"kind": "output", "cause": 3, "text": "out"}),
            frame("oh_delta", {"kind": "discard", "response_id": "r"}),
            frame("oh_tool_call", {"call_id": 5, "name": "ask", "arguments": {}, "deadline": None, "is_over": False}),
            frame("oh_delta", {"kind": "smell", "text": "?"}),
            frame("oh_new", [1]),
            frame("oh_event", {"id": "no number", "action": "run"}),
            event(1, action="levitate", args={"height": 3}, aura="blue"),
            event(2, observation="levitated", content="up", extras={}),
            state(3, "floating"),
            '45-["binary"]',
            "2",
        ]
    ]
    async with client.follow("c1", live=True) as items:
        found = (await taken(items, 13))[1:]
        waiting = asyncio.create_task(anext(items))
        await until(lambda: played.pongs == 1)
        waiting.cancel()
    kinds = [Status, Problem, TextDelta, OutputDelta, TextDiscarded, ToolCall, Unknown, Unknown, Unknown]
    assert [type(item) for item in found] == [*kinds, Action, Observation, State]
    action, told = found[9], found[11]
    assert isinstance(action, Action)
    assert (action.args, action.model_extra) == ({"height": 3}, {"aura": "blue"})
    assert isinstance(told, State)
    assert told.state == "floating"
    async with client.follow("c1") as stored:
        assert ids(await taken(stored, 3)) == [1, 2, 3]


async def test_a_wait_that_is_cancelled_loses_nothing(played: Played, client: DrydockClient) -> None:
    played.lines = [[*UP, event(0)]]
    async with client.follow("c1") as items:
        await taken(items, 1)
        for number in (1, 2, 3):
            waiting = asyncio.create_task(anext(items))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await played.say(event(number))
            assert ids(await taken(items, 1)) == [number]
    assert played.count("LINE -1") == 1


async def test_a_server_that_stays_away_ends_the_following(played: Played, client: DrydockClient) -> None:
    played.lines = [[*UP, event(0)], [], *[[] for _ in range(20)]]
    async with client.follow("c1", reconnect_seconds=0.3) as items:
        await taken(items, 1)
        with pytest.raises(UnreachableError, match="No live connection to"):
            await taken(items, 1)
    assert played.count("LINE 0") > 1
    played.lines = [[*UP, event(0)], [OPENING, '44{"message":"try again in a moment"}']]
    async with client.follow("c1", reconnect_seconds=0.3) as items:
        await taken(items, 1)
        with pytest.raises(RefusedError, match="try again in a moment"):
            await taken(items, 1)


async def test_lines_that_end_at_once_are_not_opened_without_end(played: Played, client: DrydockClient) -> None:
    played.lines = [[*UP, event(0)], *[[*UP] for _ in range(20)]]
    async with client.follow("c1", reconnect_seconds=0.5) as items:
        await taken(items, 1)
        with pytest.raises(UnreachableError, match="ends each live connection at once"):
            await taken(items, 1)
    assert 2 <= played.count("LINE 0") <= 6


@pytest.mark.parametrize(
    ("message", "kind"),
    [("invalid_session_api_key", KeyRefusedError), ("Conversation c1 not found", NotFoundError)],
)
async def test_what_no_further_attempt_would_mend_is_told_at_once(
    played: Played, client: DrydockClient, message: str, kind: type[Exception]
) -> None:
    played.lines = [[OPENING, JOINED, event(0)], [OPENING, f'44{{"message":"{message}"}}']]
    async with client.follow("c1") as items:
        await taken(items, 1)
        with pytest.raises(kind):
            await taken(items, 1)
    assert played.asked.count("LINE 0") == 1


async def test_the_end_of_the_client_is_the_end_of_what_it_follows(played: Played) -> None:
    played.lines = [[*UP, event(0)]]
    async with DrydockClient(played.url) as client:
        items = client.follow("c1")
        await taken(items, 1)
        waiting = asyncio.create_task(anext(items, None))
    async with asyncio.timeout(60):
        assert await waiting is None
    await until(lambda: played.open_lines == 0)


async def test_a_slow_reader_makes_the_server_wait_and_misses_nothing() -> None:
    count, size = 200, 200_000
    async with serving() as loopback:
        stream = loopback.conversations.known["c1"].stream
        assert stream is not None
        for _ in range(count):
            await stream.add_event(MessageEvent(source="agent", llm_message=Message.assistant("x" * size)))

        async with DrydockClient(f"http://127.0.0.1:{loopback.port}") as client:

            async def known() -> None:
                """The routes are not part of this server."""

            items = client.follow("c1")
            items._connector = items._connector._replace(check=known)
            await taken(items, 1)
            most = 0
            for _ in range(50):
                await asyncio.sleep(0.005)
                most = max(most, loopback.gateway.waiting_bytes)
            # The whole would be forty megabytes: the server has stopped in the middle, and so has the transport.
            assert 0 < most < 2_000_000
            assert items._connection is not None
            assert len(items._connection._socket.recv_messages.frames) <= 20
            assert ids(await taken(items, count - 1)) == list(range(1, count))


async def test_a_log_that_was_reset_is_told_anew_from_its_beginning(played: Played, client: DrydockClient) -> None:
    resync = {"reason": "unknown_position", "latest_event_id": 7, "start_id": 0, "end_id": 1}
    played.lines = [[*UP, event(7)], [*UP, frame("oh_resync", resync), event(2)], [*UP, event(0), event(1), event(2)]]
    async with client.follow("c1", live=True) as items:
        found = await taken(items, 8)
        assert ids(found) == [7, 0, 1, 2]
        assert [item for item in found if isinstance(item, Resync)] == [Resync(**resync)]
    assert [asked for asked in played.asked if asked.startswith("LINE")] == ["LINE -1", "LINE 7", "LINE -1"]


async def test_waiting_goes_by_states_behind_the_event_and_not_by_those_before(
    played: Played, client: DrydockClient
) -> None:
    log = "GET /api/conversations/c1/events"
    old = {"id": 3, "timestamp": "2026-01-02T03:04:05Z", "source": "environment", "observation": "agent_state_changed"}
    old |= {"message": "", "content": "", "extras": {"agent_state": "awaiting_user_input", "reason": ""}}
    played.answers[log] = [JSONResponse({"events": [old], "has_more": False})]
    assert (await client.wait("c1", limit_seconds=5)).id == 3
    played.lines = [[*UP, event(5), state(None, "awaiting_user_input"), state(6, "running"), state(9, "finished")]]
    reached = await client.wait("c1", after=4, limit_seconds=5)
    assert (reached.id, reached.state) == (9, "finished")
    with pytest.raises(LimitError, match=r"was in none of the states paused within 0\.2 s"):
        await client.wait("c1", after=4, until=["paused"], limit_seconds=0.2)
    assert (await client.wait("c1", after=4, until=["running"], limit_seconds=5)).id == 6


async def test_the_log_is_read_from_both_ends(played: Played, client: DrydockClient) -> None:
    log = "GET /api/conversations/c1/events"
    base: dict[str, object] = {"timestamp": "2026-01-02T03:04:05Z", "source": "agent", "message": ""}
    page: list[dict[str, object]] = [
        {**base, "id": n, "observation": "null", "content": "", "extras": {}} for n in (1, 2)
    ]
    odd = {"id": 3, "surprise": True}
    played.answers[log] = [
        JSONResponse({"events": page, "has_more": True}),
        JSONResponse({"events": [odd], "has_more": False}),
    ]
    found = [one async for one in client.events("c1", after=0)]
    assert [type(one) for one in found] == [Observation, Observation, Unknown]
    played.answers[log] = [JSONResponse({"events": page, "has_more": True})]
    assert len([one async for one in client.events("c1", limit=4, reverse=True)]) == 4
