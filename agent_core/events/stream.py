"""The event stream of one conversation: number, mask, store, then wake the readers, which are cursors over it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, Self
from weakref import WeakValueDictionary

from pydantic import ValidationError

from agent_core.errors import EventStoreError, StreamClosedError
from agent_core.events.event import Source, utc_now
from agent_core.events.masking import SecretMasker
from agent_core.events.serialization import AnyEvent, encoded, from_data, from_payload
from agent_core.events.store import EventStore, NewEvent
from agent_core.events.transient import CurrentNotices, OutputDelta, StatusNotice, TextDelta, Transient, joined
from agent_core.spans import Span
from agent_core.spelling import spelled

MAX_PENDING_NOTICES = 64
NO_EPOCH: Final = -1
"""Of who does not own the log: with it nothing is stored."""
READ_AGAIN_SECONDS: Final = 0.5
MAX_LOGGED: Final = 2000
"""Bytes of an event that the process's log shows."""

logger = logging.getLogger(__name__)


class Outage(NamedTuple):
    """Since when (`time.monotonic`) a log takes nothing or cannot be read, and why."""

    since: float
    error: EventStoreError


class _Pending(NamedTuple):
    after: int  # the last stored event when the notice was published
    notice: Transient


class Subscription:
    """A cursor that yields a stream's events after a position, each once, in order, then waits for more.

    A slow reader costs no memory. Transient notices come after the events that were stored before they were published;
    where a reader lags they are joined, then the oldest dropped: what they announce is in the log anyway. `position` is
    the last event that was delivered; a reader that `acts` is woken before the others. While the log cannot be read for
    a reason that may pass (an `EventStoreError` with a code), it waits and tries again.
    """

    def __init__(self, stream: EventStream, *, after: int, transients: bool, acts: bool = False) -> None:
        self.position = after
        self.acts = acts
        self._stream = stream
        self._wants_notices = transients
        self._notices: deque[_Pending] | tuple[()] = ()
        self._fetched: Sequence[AnyEvent] = ()
        self._taken = 0
        self._waiting: asyncio.Future[None] | None = None

    @property
    def read_ahead(self) -> int:
        """The last event that was fetched from the stream, delivered or not."""
        return self._fetched[-1].id if self._fetched else self.position

    async def __aenter__(self) -> Self:
        self._stream.attach(self)
        return self

    async def __aexit__(self, *_exception: object) -> None:
        self._stream.detach(self)
        self._notices = ()
        self._fetched = ()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AnyEvent | Transient:
        """The next event or notice, until the stream is closed and everything was read.

        Raises `EventStoreError` where the log cannot be read and that will not pass; the position is kept, so trying
        again is sound.
        """
        while True:
            if self._notices and self._notices[0].after <= self.position:  # everything before it was read already
                return self._notices.popleft().notice
            if self._fetched:
                event = self._fetched[self._taken]
                self._taken += 1
                if self._taken == len(self._fetched):
                    self._fetched = ()
                self.position = event.id
                return event
            if self._stream.last_id > self.position and (page := await self._page()):
                self._fetched, self._taken = page, 0
            elif self._notices:
                return self._notices.popleft().notice
            elif self._stream.closed:
                raise StopAsyncIteration
            else:  # wait for `wake`: there was no turn of the loop since the look that found nothing
                self._waiting = asyncio.get_running_loop().create_future()
                try:
                    await self._waiting
                finally:
                    self._waiting = None

    async def _page(self) -> list[AnyEvent]:
        stream, has_failed = self._stream, False
        while True:
            try:
                page = await stream.page(after=self.position)
            except EventStoreError as error:
                if not error.code or stream.closed:
                    raise
                stream.failed(error)
                has_failed = True
            else:
                if has_failed:
                    stream.outage = None
                return page
            await asyncio.sleep(READ_AGAIN_SECONDS)

    @property
    def waits(self) -> bool:
        return self._waiting is not None

    def wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def offer(self, notice: Transient) -> None:
        """Take a notice; joined with the last one where that is the same text."""
        if not self._wants_notices:
            return
        after = self._stream.last_id
        if not isinstance(self._notices, deque):  # an empty one takes a kilobyte, and most readers want none
            self._notices = deque()
        if self._notices and self._notices[-1].after == after:
            both = _joined(self._notices[-1].notice, notice)
            if both is not None:
                self._notices[-1] = _Pending(after, both)
                self.wake()
                return
        self._notices.append(_Pending(after, notice))
        if len(self._notices) > MAX_PENDING_NOTICES:
            self._notices.popleft()
        self.wake()


def _joined(first: Transient, second: Transient) -> Transient | None:
    match first, second:
        case TextDelta(), TextDelta() if (first.response_id, first.channel) == (second.response_id, second.channel):
            return joined(first, second)
        case OutputDelta(), OutputDelta() if first.cause == second.cause:
            return joined(first, second)
    return None


class _Page(list[AnyEvent]):
    """What was read of a log at once; it lasts as long as one of its readers is at it."""

    __slots__ = ("__weakref__",)


RECENT_EVENTS = 128
RECENT_BYTES = 96 * 1024
PAGE = 200

_UNMASKED_FIELDS = frozenset({"kind", "source", "timestamp", "id", "cause"})


@spelled
class EventStream:
    """One conversation's log, as its writers and readers see it; `open` makes one.

    Readers see up to `last_id` (-1 in an empty log). `newest_id` is ahead of it while the store has not answered for
    the events in between: who decides by the whole log waits for them. `log_level` is that at which the process's log
    is told each event, masked, once it is stored. `asked_in` is the span in which its user has last said something, and
    `step` that of the agent's last step: what comes of them is done elsewhere.
    """

    def __init__(self, conversation_id: str, store: EventStore, *, epoch: int, last_id: int) -> None:
        self.conversation_id = conversation_id
        self.secrets = SecretMasker()
        self.last_id = self.newest_id = last_id
        self._store = store
        self._epoch = epoch
        self._recent: deque[tuple[AnyEvent, int]] = deque()
        self._recent_bytes = 0
        self._arrived: dict[int, tuple[AnyEvent, int]] = {}
        self._pages: WeakValueDictionary[tuple[int, int], _Page] = WeakValueDictionary()
        self._reading: dict[tuple[int, int], asyncio.Task[_Page]] = {}
        self._subscriptions: dict[Subscription, None] = {}
        self._current = CurrentNotices()
        self.log_level = logging.DEBUG
        self.outage: Outage | None = None
        self.asked_in: Span | None = None
        self.step: Span | None = None
        self.closed = False

    @classmethod
    async def open(cls, conversation_id: str, store: EventStore) -> EventStream:
        """Become the owner of the log and open it at its end; raises `EventStoreError`."""
        epoch = await store.claim(conversation_id)
        return cls(conversation_id, store, epoch=epoch, last_id=await store.last_id(conversation_id))

    @classmethod
    async def follow(cls, conversation_id: str, store: EventStore) -> EventStream:
        """Open the log at its end for reading, while somebody else owns it; `catch_up` shows what was added."""
        return cls(conversation_id, store, epoch=NO_EPOCH, last_id=await store.last_id(conversation_id))

    async def catch_up(self) -> None:
        """Have readers see what its owner has stored; raises `EventStoreError`. Call it one at a time."""
        while stored := await self._store.read(self.conversation_id, after=self.last_id, limit=PAGE):
            for record in stored:
                event = from_payload(record.payload, record.id, self.conversation_id)
                self.last_id = self.newest_id = event.id
                self._remember(event, len(record.payload))
                self._current.settle(event)
            self._wake()

    async def add_event(self, event: AnyEvent, source: Source | None = None, *, cause: int | None = None) -> AnyEvent:
        """Store one event; see `add_events`. `source` and `cause` replace the event's own."""
        origin = {
            "source": event.source if source is None else source,
            "cause": event.cause if cause is None else cause,
        }
        return (await self.add_events([event.model_copy(update={"timestamp": utc_now(), **origin})]))[0]

    async def add_events(self, events: Sequence[AnyEvent]) -> list[AnyEvent]:
        """Store `events` together (all or none) and return them as stored: masked, with their ids.

        When it returns they are durable and the readers are awake. Being cancelled meanwhile does not undo it. Raises
        `ValueError` where one already has an id, `StreamClosedError`, `StaleOwnerError`, `EventStoreError`.
        """
        if self.closed:
            raise StreamClosedError(f"the stream of conversation {self.conversation_id} is closed")
        if any(event.id >= 0 for event in events):
            raise ValueError("an event that is already in a log cannot be added again; copy it without its id")
        if not events:
            return []
        masked = [self._masked(event) for event in events]
        records = [NewEvent(event.kind, event.source, event.cause, event.timestamp, data) for event, data in masked]
        # Shielded: the store finishes what it began, so the readers must be told even if our caller has gone.
        work = self._store_and_wake([event for event, _ in masked], records)
        storing = asyncio.ensure_future(work)
        storing.add_done_callback(_seen)
        return await asyncio.shield(storing)

    async def _store_and_wake(self, events: list[AnyEvent], records: list[NewEvent]) -> list[AnyEvent]:
        try:
            first = await self._store.append(self.conversation_id, records, epoch=self._epoch)
        except EventStoreError as error:
            self.failed(error)
            raise
        self.outage = None
        stored = [event.stored_as(first + i) for i, event in enumerate(events)]
        for event, record in zip(stored, records, strict=True):
            self._arrived[event.id] = (event, len(record.payload))
        self.newest_id = max(self.newest_id, first + len(stored) - 1)
        # Two appends may come back out of order; readers get the events in the order of their ids.
        while (entry := self._arrived.pop(self.last_id + 1, None)) is not None:
            self.last_id = entry[0].id
            self._remember(*entry)
            self._current.settle(entry[0])
        self._wake()
        if logger.isEnabledFor(self.log_level):
            for event, record in zip(stored, records, strict=True):
                text = record.payload[:MAX_LOGGED].decode("utf-8", "replace")
                rest = " …" if len(record.payload) > MAX_LOGGED else ""
                logger.log(
                    self.log_level, "conversation %s: event %d: %s%s", self.conversation_id, event.id, text, rest
                )
        return stored

    def _wake(self) -> None:
        """First those that act, so that what they begin is running while the others look on."""
        looking_on = []
        for subscription in self._subscriptions:
            if subscription.acts:
                subscription.wake()
            elif subscription.waits:
                looking_on.append(subscription)
        if looking_on:
            asyncio.get_running_loop().call_soon(_wake_all, looking_on)

    def _remember(self, event: AnyEvent, size: int) -> None:
        """Keep the event for the live readers, as long as one of them has still to read it and there is room."""
        self._recent.append((event, size))
        self._recent_bytes += size
        read_by_all = min((reader.read_ahead for reader in self._subscriptions), default=self.last_id)
        while self._recent and (
            self._recent[0][0].id <= read_by_all
            or len(self._recent) > RECENT_EVENTS
            or self._recent_bytes > RECENT_BYTES
        ):
            self._recent_bytes -= self._recent.popleft()[1]

    def _masked(self, event: AnyEvent) -> tuple[AnyEvent, bytes]:
        """The event without secrets, and its payload, which tells quickly that it has none."""
        plain = encoded(event)
        return encoded(self._mask(plain[0])) if self.secrets.may_be_in(plain[1]) else plain

    def _mask(self, event: AnyEvent) -> AnyEvent:
        data = event.model_dump(mode="json", exclude={"id"})
        masked = {
            key: value if key in _UNMASKED_FIELDS else self._mask_field(key, value) for key, value in data.items()
        }
        if masked == data:
            return event
        try:
            return from_data(masked)
        except ValidationError:
            # A secret equal to a word of our own vocabulary ("running"): those fields cannot hold anything else.
            readable = dict(data)
            for key, value in masked.items():
                try:
                    from_data({**readable, key: value})
                except ValidationError:
                    continue
                readable[key] = value
            return from_data(readable)

    def _mask_field(self, key: str, value: Any) -> Any:
        masked = self.secrets.data(value)
        if isinstance(value, dict) and "kind" in value:
            masked["kind"] = value["kind"]
        return masked

    async def page(self, *, after: int = -1, limit: int = PAGE) -> list[AnyEvent]:
        """At most `limit` events with id > `after`, ascending; the end of the log gives an empty list.

        The list may be shared with others who read there: do not change it.
        """
        if after >= self.last_id:
            return []
        if self._recent and self._recent[0][0].id <= after + 1:
            start = after + 1 - self._recent[0][0].id
            return [entry[0] for entry in list(self._recent)[start : start + limit]]
        place = (after, min(limit, self.last_id - after))
        if (page := self._pages.get(place)) is not None:
            return page
        # Many that come back at the same moment read the same: once for all of them.
        if (reading := self._reading.get(place)) is None:
            reading = self._reading[place] = asyncio.create_task(self._read(*place), name="page of a log")
            reading.add_done_callback(partial(self._was_read, place))
        return await asyncio.shield(reading)

    async def _read(self, after: int, limit: int) -> _Page:
        stored = await self._store.read(self.conversation_id, after=after, limit=limit)
        page = _Page(
            from_payload(record.payload, record.id, self.conversation_id)
            for record in stored
            if record.id <= self.last_id
        )
        self._pages[after, limit] = page
        return page

    def _was_read(self, place: tuple[int, int], reading: asyncio.Task[_Page]) -> None:
        del self._reading[place]
        if not reading.cancelled():
            reading.exception()  # whoever waits is told; those who went away need not be

    async def page_before(self, *, before: int, limit: int = PAGE) -> list[AnyEvent]:
        """At most `limit` events with id < `before`, descending."""
        before = min(before, self.last_id + 1)
        stored = await self._store.read_before(self.conversation_id, before=before, limit=limit)
        return [from_payload(record.payload, record.id, self.conversation_id) for record in stored]

    async def history(self, *, after: int = -1) -> AsyncIterator[AnyEvent]:
        """All events with id > `after` that are stored by now, ascending; ends there."""
        end = self.last_id
        while after < end and (page := await self.page(after=after)):  # none are left of a log that was deleted
            for event in page:
                after = event.id
                yield event

    def subscribe(self, *, after: int = -1, transients: bool = False, acts: bool = False) -> Subscription:
        """A cursor behind event `after`; with `transients` it also sees the notices published from now on.

        A reader that `acts` on what it reads is woken a turn of the loop earlier. Behind the history come the
        `CurrentNotices`. Use it as ``async with`` and iterate over it.
        """
        return Subscription(self, after=after, transients=transients, acts=acts)

    def failed(self, error: EventStoreError) -> None:
        """Its log could not be read or written; an earlier `outage` goes on."""
        self.outage = Outage(time.monotonic() if self.outage is None else self.outage.since, error)

    def publish(self, notice: Transient) -> None:
        """Show a notice, which is not stored, to the readers; what a status says is masked."""
        if isinstance(notice, StatusNotice) and (shown := self.secrets.text(notice.message)) != notice.message:
            notice = replace(notice, message=shown)
        self._current.note(notice)
        for subscription in self._subscriptions:
            subscription.offer(notice)

    def attach(self, subscription: Subscription) -> None:
        self._subscriptions[subscription] = None
        for notice in self._current:
            subscription.offer(notice)

    def detach(self, subscription: Subscription) -> None:
        self._subscriptions.pop(subscription, None)

    def close(self) -> None:
        self.closed = True
        for subscription in self._subscriptions:
            subscription.wake()


def _seen(storing: asyncio.Future[list[AnyEvent]]) -> None:
    if not storing.cancelled():
        storing.exception()  # whoever waits is told; who was cancelled has other things to do


def _wake_all(subscriptions: Sequence[Subscription]) -> None:
    for subscription in subscriptions:
        subscription.wake()
