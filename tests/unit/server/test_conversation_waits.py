"""What the MCP door makes of a conversation's log, and how it waits, with a client that has the log in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from drydock_client import Conversation, DrydockClient, Event, EventPage, NotFoundError, UnreachableError
from drydock_client.events import read_event
from server.doors.mcp import conversations as conversations_module
from server.doors.mcp.conversations import DoorConversations, DoorError, TurnStatus, turn_status_of


def event(ident: int, kind: str, text: str = "", **more: Any) -> dict[str, Any]:
    """An event as the server gives it."""
    base = {"id": ident, "timestamp": "2026-11-22T01:00:00", "source": "agent", "message": text}
    match kind:
        case "user":
            return {**base, "source": "user", "action": "message", "args": {"content": text}}
        case "say":
            return {**base, "action": "message", "args": {"content": text}}
        case "run":
            meta = {"tool_call_metadata": {"total_calls_in_response": more.get("of", 1)}}
            return {**base, "action": "run", "args": {"command": text}, **meta}
        case "ran":
            return {**base, "observation": "run", "content": text, "extras": {}, "cause": more["cause"]}
        case "decide":
            return {**base, "source": "user", "action": "change_agent_state", "args": {"agent_state": text}}
        case "system":
            return {**base, "action": "system", "args": {"content": text}}
        case "finish":
            return {**base, "action": "finish", "args": {"final_thought": text}}
        case "null":
            return {"id": ident, "action": "null", "args": {}, "source": "agent", "timestamp": base["timestamp"]}
    extras = {"agent_state": kind, "reason": text}
    return {**base, "source": "environment", "observation": "agent_state_changed", "content": "", "extras": extras}


class MemoryClient:
    """A `DrydockClient` as far as the door uses it."""

    def __init__(self, *kinds: tuple[str, str] | tuple[str, str, dict[str, Any]]) -> None:
        self.log: list[dict[str, Any]] = []
        self.failures: list[Exception] = []
        self.live: asyncio.Queue[Event] = asyncio.Queue()
        self.followed: list[int] = []
        for kind in kinds:
            self.add(*kind)

    def add(self, kind: str, text: str = "", more: dict[str, Any] | None = None) -> None:
        self.log.append(event(len(self.log), kind, text, **(more or {})))
        self.live.put_nowait(cast(Event, read_event(self.log[-1])))

    async def conversation(self, conversation_id: str) -> Conversation:
        if self.failures:
            raise self.failures.pop(0)
        if conversation_id != "c":
            raise NotFoundError(f"Conversation {conversation_id} not found", status=404)
        return Conversation(conversation_id="c")

    events = DrydockClient.events

    async def event_page(
        self,
        conversation_id: str,
        *,
        after: int = -1,
        before: int | None = None,
        limit: int = 20,
        reverse: bool = False,
    ) -> EventPage:
        part = [one for one in self.log if after < one["id"] and (before is None or one["id"] < before)]
        part = part[::-1] if reverse else part
        events = [read_event(one) for one in part[:limit]]
        return EventPage.model_construct(events=events, has_more=len(part) > limit)

    @asynccontextmanager
    async def follow(self, conversation_id: str, *, after: int, live: bool) -> AsyncIterator[AsyncIterator[Event]]:
        self.followed.append(after)
        while not self.live.empty():
            self.live.get_nowait()

        coming = self.live

        class Items:  # a wait that is cancelled loses nothing, as that of the real one
            async def __anext__(self) -> Event:
                return await coming.get()

        yield cast(AsyncIterator[Event], Items())


def real(client: MemoryClient) -> DrydockClient:
    return cast(DrydockClient, client)


async def status_after(*kinds: Any) -> TurnStatus:
    return await turn_status_of(real(MemoryClient(*kinds)), "c")


STARTED: tuple[Any, ...] = (("loading", ""), ("system", "You are"))


@pytest.mark.parametrize(
    ("kinds", "is_at_rest"),
    [
        ([], False),
        ([*STARTED], False),
        ([*STARTED, ("awaiting_user_input", "")], True),
        ([*STARTED, ("user", "Hi"), ("running", "")], False),
        ([*STARTED, ("user", "Hi"), ("running", ""), ("say", "Hello"), ("awaiting_user_input", "")], True),
        ([*STARTED, ("user", "Hi"), ("running", ""), ("finish", "Done"), ("finished", "")], True),
        ([*STARTED, ("user", "Hi"), ("error", "no key")], True),
        ([("finished", ""), ("user", "More")], False),
        ([("finished", ""), ("user", "More"), ("loading", ""), ("awaiting_user_input", "")], False),
        ([("finished", ""), ("user", "More"), ("loading", ""), ("system", "x"), ("awaiting_user_input", "")], False),
        ([("user", "Hi"), ("running", ""), ("run", "ls"), ("paused", "")], True),
        ([("user", "Hi"), ("running", ""), ("awaiting_user_confirmation", "")], False),
        ([("user", "Hi"), ("running", ""), ("awaiting_user_confirmation", ""), ("run", "rm", {"of": 2})], False),
        (
            [("user", "Hi"), ("awaiting_user_confirmation", ""), ("run", "a", {"of": 2}), ("run", "b", {"of": 2})],
            True,
        ),
        ([("user", "Hi"), ("awaiting_user_confirmation", ""), ("run", "a"), ("decide", "user_confirmed")], False),
        ([("user", "Hi"), ("running", ""), ("say", "x"), ("awaiting_user_input", ""), ("decide", "paused")], True),
    ],
)
async def test_a_rest_counts_once_the_agent_has_set_to_work_on_what_was_said_last(
    kinds: list[Any], is_at_rest: bool
) -> None:
    assert (await status_after(*kinds)).is_at_rest is is_at_rest


async def test_what_was_said_since_the_last_message_is_found_over_pages_and_gaps() -> None:
    busy = [("null", ""), ("run", "ls")] * 60
    found = await status_after(
        ("say", "Before."), ("user", "Hi"), *busy, ("say", "A"), ("finish", "B"), ("finished", "")
    )
    assert found.replies == ["A", "B"]
    assert found.last_event_id == 2 * 60 + 4


async def test_a_wait_survives_a_server_that_is_away_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations_module, "BEAT_SECONDS", 0.01)
    client = MemoryClient(("user", "Hi"), ("running", ""), ("run", "make"))
    told: list[str] = []

    async def tell(message: str) -> None:
        told.append(message)
        if len(told) == 2:
            client.failures = [UnreachableError("It is away.")] * 2
        if len(told) == 5:
            client.add("finish", "Done.")
            client.add("finished")

    found = await DoorConversations(real(client)).wait("c", 20, tell)
    assert (found.at_rest, found.answer) == (True, "Done.")
    assert told[0] == "run: make", "what is under way is told first"
    assert client.failures == []


async def test_a_message_that_nobody_takes_up_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as the last one of an imported log."""
    monkeypatch.setattr(conversations_module, "BEAT_SECONDS", 0.01)
    client = MemoryClient(("user", "Hi"), ("loading", ""))
    told: list[str] = []

    async def tell(message: str) -> None:
        told.append(message)
        if len(told) == 3:
            client.add("awaiting_user_input")

    found = await DoorConversations(real(client)).wait("c", 20, tell)
    assert (found.at_rest, found.state) == (True, "awaiting_user_input")
    assert len(told) == 3, "a start is waited for, however long it takes"


async def test_a_conversation_that_rests_is_not_started_by_a_wait() -> None:
    client = MemoryClient(("user", "Hi"), ("say", "x"), ("awaiting_user_input", ""))

    async def tell(message: str) -> None:
        raise AssertionError(message)

    assert (await DoorConversations(real(client)).wait("c", 20, tell)).at_rest
    assert client.followed == []
    with pytest.raises(DoorError, match="Conversation d not found"):
        await DoorConversations(real(client)).wait("d", 20, tell)


async def test_one_entry_is_given_even_where_it_fills_the_room_and_none_is_lost() -> None:
    client = MemoryClient(*[("say", "x" * 900) for _ in range(5)])
    read: list[int] = []
    after, has_more = -1, True
    while has_more:
        page = await DoorConversations(real(client)).read("c", after=after, limit=10, max_chars=500, entry_chars=4000)
        assert sum(len(one.text) for one in page.entries) <= 500
        read += [one.id for one in page.entries]
        after, has_more = page.next_after, page.has_more
    assert read == [0, 1, 2, 3, 4]
