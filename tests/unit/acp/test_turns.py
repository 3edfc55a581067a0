"""When a turn is over, and how."""

from __future__ import annotations

import asyncio

import pytest
from acp.exceptions import RequestError

from drydock_client import Action, State
from drydock_client.events import Live, read_event, read_frame
from server.doors.acp.session import EditorTurn


def state(ident: int | None, name: str, reason: str = "", detail: str = "") -> State:
    return State(id=ident, state=name, reason=reason, detail=detail)


def action(ident: int, name: str = "message", source: str = "user") -> Action:
    data = {"id": ident, "timestamp": "2026-01-01T00:00:00Z", "source": source, "action": name, "args": {}}
    found = read_event(data)
    assert isinstance(found, Action)
    return found


async def outcome(turn: EditorTurn) -> str | None:
    """How it ended; None: not yet."""
    try:
        async with asyncio.timeout(0):
            return await turn.ended()
    except TimeoutError:
        return None


async def test_rest_from_before_the_message_does_not_end_it_whenever_that_is_seen() -> None:
    for sent_first in (True, False):
        turn = EditorTurn("finished")
        items: list[Live] = [state(4, "finished"), action(5), state(6, "awaiting_user_input")]
        if sent_first:
            turn.sent(5)
        for item in items:
            turn.take(item)
        turn.sent(5)
        assert await outcome(turn) is None
        turn.take(state(7, "running"))
        turn.take(state(8, "finished"))
        assert await outcome(turn) == "end_turn"


async def test_a_whole_turn_that_was_seen_before_the_message_was_confirmed_counts() -> None:
    turn = EditorTurn("awaiting_user_input")
    for item in (action(5), state(6, "running"), state(7, "awaiting_user_input")):
        turn.take(item)
    assert await outcome(turn) is None
    turn.sent(5)
    assert await outcome(turn) == "end_turn"


async def test_a_state_that_is_told_on_connecting_is_none_of_this_turn() -> None:
    turn = EditorTurn("paused")
    turn.sent(5)
    turn.take(state(None, "paused"))
    assert await outcome(turn) is None


async def test_a_message_that_a_hook_refuses_ends_the_turn() -> None:
    turn = EditorTurn("awaiting_user_input")
    turn.sent(5)
    for item in (action(5), state(6, "finished")):
        turn.take(item)
    assert await outcome(turn) == "end_turn"


@pytest.mark.parametrize(
    ("name", "reason", "expected"),
    [
        ("finished", "", "end_turn"),
        ("awaiting_user_input", "", "end_turn"),
        ("rejected", "", "refusal"),
        ("paused", "", "cancelled"),
        ("stopped", "", "cancelled"),
        ("error", "RuntimeError: Agent reached maximum iteration. Current iteration: 3", "max_turn_requests"),
        ("error", "STATUS$ERROR_LLM_CONTENT_POLICY_VIOLATION", "refusal"),
        ("error", "LLMContextWindowError: too long", "max_tokens"),
        ("running", "", None),
        ("rate_limited", "", None),
        ("awaiting_user_confirmation", "", None),
        ("of_a_newer_server", "", None),
    ],
)
async def test_each_state_has_its_reason(name: str, reason: str, expected: str | None) -> None:
    turn = EditorTurn("awaiting_user_input")
    turn.sent(5)
    for item in (action(5), state(6, "running"), state(7, name, reason)):
        turn.take(item)
    assert await outcome(turn) == expected


async def test_other_errors_are_errors_in_words() -> None:
    turn = EditorTurn()
    turn.sent(5)
    for item in (action(5), state(6, "error", "STATUS$ERROR_LLM_AUTHENTICATION", "The key is wrong.")):
        turn.take(item)
    with pytest.raises(RequestError, match="The key is wrong") as caught:
        await turn.ended()
    assert caught.value.data == {"reason": "STATUS$ERROR_LLM_AUTHENTICATION"}


async def test_a_session_that_cannot_be_started_ends_it_before_the_message_is_confirmed() -> None:
    turn = EditorTurn()
    turn.take(read_frame("oh_event", {"error": True, "message": "Failed to create agent session: no engine"}))
    with pytest.raises(RequestError, match="no engine"):
        await turn.ended()


async def test_a_cancelled_turn_is_cancelled_however_it_ends() -> None:
    turns = [EditorTurn(), EditorTurn()]
    for turn in turns:
        turn.is_cancelled = True
    turns[0].end("end_turn")
    turns[1].fail(RuntimeError("lost"))
    assert [await outcome(turn) for turn in turns] == ["cancelled", "cancelled"]
