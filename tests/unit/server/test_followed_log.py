"""The log of a conversation that another server runs, as it is followed."""

from __future__ import annotations

import asyncio
import logging

import pytest

from agent_core.events.llm_events import MessageEvent
from agent_core.events.messages import Message
from agent_core.events.store import InMemoryEventStore, StoredEvent
from agent_core.events.stream import EventStream
from server.conversation_manager import followed_log
from server.conversation_manager.followed_log import FollowedLog


class FaultyStore(InMemoryEventStore):
    """A store with a fault of its own, once: no answer that a store may give."""

    faults = 1

    async def read(self, conversation_id: str, *, after: int = -1, limit: int = 100) -> list[StoredEvent]:
        if self.faults:
            self.faults -= 1
            raise RuntimeError("a fault of ours")
        return await super().read(conversation_id, after=after, limit=limit)


async def test_it_is_followed_again_after_an_unexpected_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(followed_log, "LOOK_SECONDS", 0.01)
    store = FaultyStore()
    written = await EventStream.open("c", store)
    followed = await FollowedLog.open("c", "another", store)
    with caplog.at_level(logging.ERROR):
        async with asyncio.timeout(60), followed.stream.subscribe() as items:
            await written.add_event(MessageEvent(source="user", llm_message=Message.user("Hello")))
            seen = await anext(items)
    assert isinstance(seen, MessageEvent)
    assert (seen.id, seen.source) == (0, "user")
    assert "a fault of ours" in caplog.text
    await followed.close()
    assert followed.stream.closed
