"""Reading a conversation's log, stored and live, and waiting for what it will say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from typing import Any, Final

from drydock_client.calls import conversation_path
from drydock_client.conversations import ConversationCalls
from drydock_client.errors import LimitError, NotDrydockError
from drydock_client.events import RESTING, Event, State, Unknown, read_event
from drydock_client.following import Following, LineMaker
from drydock_client.http import Http
from drydock_client.line import Line
from drydock_client.results import EventPage

PAGE: Final = 100
"""The most that a server gives at a time."""


class LogCalls(ConversationCalls):
    """See `client.DrydockClient`."""

    def __init__(self, http: Http) -> None:
        super().__init__(http)
        self._followings: set[Following] = set()

    async def event_page(
        self,
        conversation_id: str,
        *,
        after: int = -1,
        before: int | None = None,
        limit: int = 20,
        reverse: bool = False,
    ) -> EventPage:
        """A part of the log: of what came after the event `after` (and before `before`), the first `limit` events.

        With `reverse` the last ones, newest first. Does not start the conversation.
        """
        query = {
            "start_id": after + 1,
            "end_id": None if before is None else before - 1,
            "limit": limit,
            "reverse": reverse,
        }
        answer = await self._http.json("GET", conversation_path(conversation_id, "events"), query=query)
        if not isinstance(answer, dict) or not isinstance(answer.get("events"), list):
            raise NotDrydockError(f"A page of events has another form than it should: {answer!r:.200}")
        events = [read_event(one) for one in answer["events"]]
        return EventPage.model_construct(events=events, has_more=answer.get("has_more") is True)

    async def events(
        self, conversation_id: str, *, after: int = -1, limit: int | None = None, reverse: bool = False
    ) -> AsyncIterator[Event | Unknown]:
        """The log as it is stored, page by page as it is asked for; at most `limit` events. See `event_page`."""
        given, edge = 0, None
        while limit is None or given < limit:
            size = PAGE if limit is None else min(PAGE, limit - given)
            start, end = (after, edge) if reverse else (after if edge is None else edge, None)
            page = await self.event_page(conversation_id, after=start, before=end, limit=size, reverse=reverse)
            for event in page.events:
                given += 1
                edge = edge if event.id is None else event.id
                yield event
            if not page.has_more or edge is None:
                return

    async def trajectory(self, conversation_id: str) -> list[dict[str, Any]]:
        """The whole log in the protocol's own form, for keeping, or for `replay_json` of a new conversation."""
        answer = await self._http.json("GET", conversation_path(conversation_id, "trajectory"))
        found = answer.get("trajectory") if isinstance(answer, dict) else None
        if not isinstance(found, list):
            raise NotDrydockError(f"A trajectory has another form than it should: {answer!r:.200}")
        return found

    async def state(self, conversation_id: str) -> State | None:
        """The agent's last state in the log, with its `id`; None in a log without one. Does not start anything."""
        async for event in self.events(conversation_id, reverse=True):
            if isinstance(event, State):
                return event
        return None

    def follow(
        self, conversation_id: str, *, after: int = -1, live: bool = False, reconnect_seconds: float = 120.0
    ) -> Following:
        """Follow a conversation: what came after the event `after`, then what happens, as long as it is iterated.

        Each event that the server shows comes once, in order, however often the connection breaks; of the states that
        the agent was in while there was no connection, only the last is told. Following a conversation starts it, if
        it does not run. A slow reader costs a bounded amount of memory, here and at the server.

        Args:
            conversation_id: which.
            after: the last event that is known; -1 for none.
            live: also what is in no log: `Status`, `Problem`, text and output on its way, calls for clients, `Unknown`
                and `Connected`. Else only `Action`, `Observation` and `State`.
            reconnect_seconds: for how long the server may be away. The first connection is not waited for.
        """

        async def open_line(position: int, seconds: float) -> Line:
            return await Line.open(self._http.base_url, conversation_id, position, self._http.headers, seconds)

        async def check() -> None:
            await self.conversation(conversation_id)

        return Following(
            conversation_id,
            LineMaker(open_line, check, self._followings),
            after=after,
            live=live,
            reconnect_seconds=reconnect_seconds,
        )

    async def end_followings(self) -> None:
        """Close what is still followed."""
        for following in list(self._followings):
            await following.aclose()

    async def wait(
        self,
        conversation_id: str,
        *,
        until: Collection[str] = RESTING,
        after: int | None = None,
        limit_seconds: float = 600.0,
    ) -> State:
        """Wait until the agent is in one of these states, by default those in which it waits for somebody.

        Args:
            conversation_id: which.
            until: the states.
            after: only states after this event count, such as the message whose answer is waited for; by default the
                present one does.
            limit_seconds: for how long.

        Raises:
            LimitError: it was in none of them in time.
        """
        try:
            async with asyncio.timeout(limit_seconds):
                return await self._until(conversation_id, frozenset(until), after)
        except TimeoutError as error:
            wanted = ", ".join(sorted(until))
            raise LimitError(
                f"Conversation {conversation_id} was in none of the states {wanted} within {limit_seconds:g} s.",
                fix="Wait again, or pause it.",
            ) from error

    async def _until(self, conversation_id: str, states: frozenset[str], after: int | None) -> State:
        start = -1 if after is None else after
        if after is None:
            now = await self.state(conversation_id)
            if now is not None and now.id is not None:
                if now.state in states:
                    return now
                start = now.id
        async with self.follow(conversation_id, after=start) as items:
            async for item in items:
                if not isinstance(item, State) or item.state not in states:
                    continue
                if item.id is not None:
                    return item
                # Told on connecting, without its place: the log knows whether it is from before.
                stored = await self.state(conversation_id)
                if stored is not None and (stored.id or 0) > start and stored.state in states:
                    return stored
        raise AssertionError("unreachable: a following ends by an error or by being closed")
