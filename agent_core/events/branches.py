"""Branches of a log: going back is an event too (`Rewind`), and what it undid stays in the log.

Each event follows the one before it, except the first after a `Rewind`, which follows the event that it names. What
counts is the path from the root to the newest event.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Literal, Protocol, TypeVar

from pydantic import Field

from agent_core.events.event import UNSTORED, Event, Source
from agent_core.events.llm_events import (
    ActionEvent,
    AgentErrorEvent,
    ObservationEvent,
    UserRejectObservation,
)

_Event = TypeVar("_Event", bound=Event)
_Read = TypeVar("_Read", bound=Event, covariant=True)


class Rewind(Event):
    """From here on the conversation goes on behind event `to` (-1: before its first), as if nothing had come after it.

    Any event may be named, also an undone one: so a rewind can be taken back. What was spent stays spent. With
    `restores` the files are brought back next, which a `FilesRestored` then says; `files_of` is the event as of which
    they are, where that is known already, and `note` tells people why they are left as they are. `forked_from` is, in
    the rewind that begins a fork, the id of the conversation that it comes from.
    """

    kind: Literal["Rewind"] = "Rewind"
    source: Source = "user"
    to: int = Field(ge=-1)
    restores: bool = False
    files_of: int | None = None
    note: str = ""
    forked_from: str = ""

    @property
    def headline(self) -> str:
        return f"goes on behind [{self.to}]" if self.to >= 0 else "goes back to the beginning"


class FilesRestored(Event):
    """What became of the files after the rewind `cause`; where a log lacks it, whoever opens it next brings them back.

    `files_of` is the id of the event as of which the files are now (None: left as they were), `note` is for people.
    """

    kind: Literal["FilesRestored"] = "FilesRestored"
    source: Source = "user"
    cause: int
    files_of: int | None = None
    note: str = ""

    @property
    def headline(self) -> str:
        told = "files left as they are" if self.files_of is None else f"files are those of [{self.files_of}]"
        return f"{told}: {self.note}" if self.note else told


class Branches:
    """The branches of a log: which events count. `fold` takes all its events in the order of their ids.

    `last_id` ends the active branch; `unrestored` is the newest rewind, while the files are yet to be brought back.
    """

    def __init__(self) -> None:
        self.last_id = -1
        self.unrestored: Rewind | None = None
        self._starts = [0]
        self._parents = [-1]
        self._trunk: list[range] = []

    @property
    def rewinds(self) -> int:
        return len(self._starts) - 1

    def fold(self, event: Event) -> bool:
        """Whether the next event belongs to the active branch: late answers to what is undone do not."""
        if isinstance(event, Rewind) and event.to < event.id:
            self._trunk = self.path(event.to)
            self._starts.append(event.id)
            self._parents.append(event.to)
            self.unrestored = event if event.restores else None
        elif isinstance(event, FilesRestored | ActionEvent):  # what was done since is not to be taken back
            self.unrestored = None
        self.last_id = event.id
        return event.cause is None or self.has(event.cause)

    def path(self, leaf: int | None = None) -> list[range]:
        """The ids from the root to `leaf` (the newest event, if None), as ascending stretches."""
        position = self.last_id if leaf is None else leaf
        stretches: list[range] = []
        while position >= 0:
            index = bisect_right(self._starts, position) - 1
            stretches.append(range(self._starts[index], position + 1))
            position = self._parents[index]
        return stretches[::-1]

    def has(self, event_id: int) -> bool:
        if event_id >= self._starts[-1]:
            return event_id <= self.last_id
        return _lies_on(self._trunk, event_id)


def active_branch(log: Iterable[_Event], leaf: int | None = None) -> list[_Event]:
    """The events of a whole log that count, in order; with `leaf` those that led to it."""
    events, branches = list(log), Branches()
    for event in events:
        branches.fold(event)
    if not branches.rewinds and leaf is None:
        return events
    path = branches.path(leaf)
    ids = {event_id for stretch in path for event_id in stretch}
    return [event for event in events if event.id in ids and (event.cause is None or event.cause in ids)]


class Pages(Protocol[_Read]):
    """A log that can be read page by page (an `EventStream` is one)."""

    async def page(self, *, after: int = -1) -> Sequence[_Read]: ...


async def read_branch(log: Pages[_Event], branches: Branches, leaf: int | None = None) -> AsyncIterator[_Event]:
    """The events of the active branch, or of the one that led to `leaf`, page by page; raises `EventStoreError`."""
    path = branches.path(leaf)
    for stretch in path:
        after = stretch.start - 1
        while after < stretch.stop - 1:
            page = await log.page(after=after)
            if not page:
                return
            for event in page:
                after = event.id
                if after < stretch.stop and (event.cause is None or _lies_on(path, event.cause)):
                    yield event


def _lies_on(path: list[range], event_id: int) -> bool:
    index = bisect_right(path, event_id, key=lambda stretch: stretch.start) - 1
    return index >= 0 and event_id in path[index]


def get_unmatched_actions(events: Iterable[Event]) -> list[ActionEvent]:
    """Of the `events` of a branch the calls that can be carried out and have no answer."""
    waiting: dict[int, ActionEvent] = {}
    for event in events:
        if isinstance(event, ActionEvent) and event.action is not None:
            waiting[event.id] = event
        elif isinstance(event, ObservationEvent | UserRejectObservation | AgentErrorEvent):
            cause = event.cause
            if cause is None:  # an error may name only the model's own id of the call
                calls = (call.id for call in waiting.values() if call.tool_call_id == event.tool_call_id)
                cause = next(calls, UNSTORED)
            waiting.pop(cause, None)
    return list(waiting.values())
