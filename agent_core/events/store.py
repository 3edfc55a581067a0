"""Event stores: the protocol that every store fulfils, the store in memory, and the ids of sub-conversations.

Every implementation passes ``agent_core.testing.store_contract``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple, Protocol

from agent_core.errors import StaleOwnerError

SEPARATOR: Final = "~"

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def child_id(parent_id: str, name: str) -> str:
    """The id of the sub-conversation `name` of a conversation; raises `ValueError` where that is no such name."""
    if not _NAME.fullmatch(name):
        allowed = "small letters, digits, hyphens and underscores, up to 64"
        raise ValueError(f"{name!r} is no name of a sub-conversation; these are {allowed}")
    return f"{parent_id}{SEPARATOR}{name}"


def parent_of(conversation_id: str) -> str | None:
    """The id of the parent of a sub-conversation; None for others."""
    parent, separator, name = conversation_id.rpartition(SEPARATOR)
    return parent if separator and parent and _NAME.fullmatch(name) else None


def name_in_parent(conversation_id: str) -> str:
    """The name of a sub-conversation in its parent; of any other conversation its id."""
    return conversation_id.rpartition(SEPARATOR)[2] if parent_of(conversation_id) is not None else conversation_id


def belongs_to(conversation_id: str, other: str) -> bool:
    """Whether it is `other`, or below it."""
    return conversation_id == other or conversation_id.startswith(f"{other}{SEPARATOR}")


class NewEvent(NamedTuple):
    """An event on its way into a store: its indexed fields and its payload (`serialization.to_payload`)."""

    kind: str
    source: str
    cause: int | None
    timestamp: datetime
    payload: bytes


class StoredEvent(NamedTuple):
    """An event in a store: its position and its payload."""

    id: int
    payload: bytes


class EventReader(Protocol):
    """Logs that can be read, one for each conversation id; ids run 0, 1, 2, … without gaps."""

    async def read(self, conversation_id: str, *, after: int = -1, limit: int = 100) -> list[StoredEvent]:
        """At most `limit` events with id > `after`, ascending; fewer where they are large, none only at the end.

        Raises `EventStoreError` where the log cannot be read.
        """

    async def last_id(self, conversation_id: str) -> int:
        """Id of the last event, -1 for an empty or unknown log."""


class EventStore(EventReader, Protocol):
    """Append-only logs."""

    async def append(self, conversation_id: str, events: Sequence[NewEvent], *, epoch: int = 0) -> int:
        """Store `events` together, or none of them, and return the id of the first.

        Durable when it returns. Appends to one conversation get their ids in the order of the calls. A cancelled caller
        leaves the log whole. Raises `StaleOwnerError` where somebody with a later `epoch` has taken the conversation
        over, `EventStoreError` where they could not be stored (full disk, closed store).
        """

    async def read_before(self, conversation_id: str, *, before: int, limit: int = 100) -> list[StoredEvent]:
        """At most `limit` events with id < `before`, descending; otherwise as `read`."""

    async def claim(self, conversation_id: str) -> int:
        """Become the log's owner: returns a new, higher epoch; appends with any older one fail from now on."""

    async def delete(self, conversation_id: str) -> None:
        """Forget the log and those of its sub-conversations, and fence off their owners; unknown ids are fine."""


class InMemoryEventStore:
    """An `EventStore` that is durable as long as the process."""

    def __init__(self) -> None:
        self._logs: dict[str, list[bytes]] = {}
        self._epochs: dict[str, int] = {}

    async def append(self, conversation_id: str, events: Sequence[NewEvent], *, epoch: int = 0) -> int:
        if epoch < self._epochs.get(conversation_id, 0):
            raise StaleOwnerError(f"conversation {conversation_id} has a newer owner than epoch {epoch}")
        log = self._logs.setdefault(conversation_id, [])
        first = len(log)
        log.extend(event.payload for event in events)
        return first

    async def read(self, conversation_id: str, *, after: int = -1, limit: int = 100) -> list[StoredEvent]:
        log = self._logs.get(conversation_id, [])
        start = max(after + 1, 0)
        return [StoredEvent(start + i, payload) for i, payload in enumerate(log[start : start + limit])]

    async def read_before(self, conversation_id: str, *, before: int, limit: int = 100) -> list[StoredEvent]:
        log = self._logs.get(conversation_id, [])
        end = min(max(before, 0), len(log))
        start = max(end - limit, 0)
        return [StoredEvent(i, log[i]) for i in range(end - 1, start - 1, -1)]

    async def last_id(self, conversation_id: str) -> int:
        return len(self._logs.get(conversation_id, ())) - 1

    async def claim(self, conversation_id: str) -> int:
        self._epochs[conversation_id] = self._epochs.get(conversation_id, 0) + 1
        return self._epochs[conversation_id]

    async def delete(self, conversation_id: str) -> None:
        for log in [log for log in {*self._logs, *self._epochs} if belongs_to(log, conversation_id)]:
            self._logs.pop(log, None)
            if log in self._epochs:
                self._epochs[log] += 1
