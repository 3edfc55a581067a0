"""Forks: a new conversation whose log begins with a part of another one's."""

from __future__ import annotations

from agent_core.controller.state import opening_of, state_of_branch
from agent_core.events.branches import Branches, Rewind
from agent_core.events.control import ConfirmationPolicyChanged, MetricsUpdated
from agent_core.events.event import UNSTORED
from agent_core.events.llm_events import MetricsSnapshot, SystemPromptEvent
from agent_core.events.serialization import AnyEvent, encoded, from_payload, to_payload
from agent_core.events.store import EventStore, NewEvent
from agent_core.runtime.snapshots import moments_of
from agent_core.session.rewind import checked_place

PAGE = 200


class StoredLog:
    """One log of a store, page by page."""

    def __init__(self, store: EventStore, conversation_id: str) -> None:
        self._store = store
        self._id = conversation_id

    async def page(self, *, after: int = -1) -> list[AnyEvent]:
        return [from_payload(one.payload, one.id) for one in await self._store.read(self._id, after=after, limit=PAGE)]


async def fork_log(
    source: tuple[EventStore, str],
    target: tuple[EventStore, str],
    *,
    upto: int | None,
    reset_metrics: bool = True,
    prompt: SystemPromptEvent | None = None,
) -> list[int]:
    """Begin the empty log `target` with the events 0 to `upto` of `source`, under their ids; None takes all.

    What is open behind them is closed, and the agent waits for its user. What the user has decided for good, later as
    well, is in force in the fork. With `reset_metrics` the fork has cost nothing yet. `prompt` is what its agent is
    told, where that is another one. Returns the ids of the events at which the source may have kept its files, newest
    first; none where its files are to be taken as they are now.

    Raises:
        NoSuchEventError: the source has no event `upto`.
        EventStoreError: a log cannot be read or written; what was written of the fork is no use.
    """
    (store, source_id), (into, target_id) = source, target
    last = await store.last_id(source_id)
    place = last if upto is None else checked_place(upto, last)
    epoch = await into.claim(target_id)
    branches, after = Branches(), -1
    while after < place:
        records: list[NewEvent] = []
        for one in await store.read(source_id, after=after, limit=min(PAGE, place - after)):
            event = from_payload(one.payload, one.id)
            branches.fold(event)
            payload = one.payload
            if prompt is not None and isinstance(event, SystemPromptEvent):
                payload = to_payload(prompt.model_copy(update={"timestamp": event.timestamp}))
            records.append(NewEvent(event.kind, event.source, event.cause, event.timestamp, payload))
        await into.append(target_id, records, epoch=epoch)
        after += len(records)
    if place < 0:
        return []
    state = await state_of_branch(StoredLog(into, target_id), branches, place)
    opening = opening_of(Rewind(to=place, forked_from=source_id), state)
    opening.extend(await _decided_later(StoredLog(store, source_id), place))
    if reset_metrics:
        opening.append(MetricsUpdated(metrics=MetricsSnapshot()))
    written = [encoded(event) for event in opening]
    await into.append(
        target_id,
        [NewEvent(event.kind, event.source, event.cause, event.timestamp, payload) for event, payload in written],
        epoch=epoch,
    )
    is_now = place == last and branches.unrestored is None
    return [] if is_now else moments_of(branches.path(place), state.unanswered)


async def _decided_later(source: StoredLog, after: int) -> list[AnyEvent]:
    """The confirmation policy that is in force at the source's end, where it was changed behind that event."""
    changes: list[AnyEvent] = []
    while page := await source.page(after=after):
        after = page[-1].id
        changes.extend(event for event in page if isinstance(event, ConfirmationPolicyChanged))
    return [event.model_copy(update={"id": UNSTORED}) for event in changes[-1:]]
