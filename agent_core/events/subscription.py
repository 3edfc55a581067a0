"""A subscription is a cursor over a stream, not a queue: a slow reader costs no memory (architecture idea 3)."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from agent_core.events.serialization import AnyEvent
from agent_core.events.transient import OutputDelta, TextDelta, Transient

MAX_PENDING_NOTICES = 64
MAX_DELTA_CHARS = 32 * 1024


class Subscribed(Protocol):
    """What a subscription needs of its stream; see `agent_core.events.stream.EventStream`."""

    last_id: int
    closed: bool

    async def page(self, *, after: int) -> list[AnyEvent]:
        """The next stored events after this one; empty at the end of the log."""
        ...

    def attach(self, subscription: Subscription) -> None:
        """From now on wake the subscription, and offer it transient notices."""
        ...

    def detach(self, subscription: Subscription) -> None:
        """No longer."""
        ...


class _Pending(NamedTuple):
    after: int  # the last stored event when the notice was published
    notice: Transient


class Subscription:
    """Yields a stream's events after a position, each once, in order, then waits for more.

    With transient notices the order is kept too: a notice comes after the events that were stored before it was
    published, and before those stored later. Notices of a reader that lags are joined, then the oldest are dropped:
    what they announce is in the log anyway.

    Attributes:
        position: the last event that was delivered.
        acts: whether others wait for what its reader does; then it is woken before the others.
    """

    def __init__(self, stream: Subscribed, *, after: int, transients: bool, acts: bool = False) -> None:
        self.position = after
        self.acts = acts
        self._stream = stream
        self._wants_notices = transients
        self._notices: deque[_Pending] | tuple[()] = ()
        self._fetched: list[AnyEvent] = []  # the newest first: what is taken next stands at the end
        self._waiting: asyncio.Future[None] | None = None

    @property
    def read_ahead(self) -> int:
        """The last event that was fetched from the stream, delivered or not."""
        return self._fetched[0].id if self._fetched else self.position

    async def __aenter__(self) -> Self:
        self._stream.attach(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stream.detach(self)
        self._notices = ()
        self._fetched = []

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AnyEvent | Transient:
        """The next event or notice.

        Raises:
            StopAsyncIteration: the stream is closed and everything in it was read.
            EventStoreError: the log cannot be read; the position is kept, so trying again is sound.
        """
        while True:
            if self._notices and self._notices[0].after <= self.position:  # everything before it was read already
                return self._notices.popleft().notice
            if self._fetched:
                event = self._fetched.pop()
                self.position = event.id
                return event
            if self._stream.last_id > self.position and (page := await self._stream.page(after=self.position)):
                self._fetched = page[::-1]
            elif self._notices:
                return self._notices.popleft().notice
            elif self._stream.closed:
                raise StopAsyncIteration
            else:
                await self._sleep()

    async def _sleep(self) -> None:
        """Wait for `wake`; there is no turn of the loop between the look that found nothing and this."""
        waiting = self._waiting = asyncio.get_running_loop().create_future()
        try:
            await waiting
        finally:
            self._waiting = None

    @property
    def waits(self) -> bool:
        """Whether its reader sleeps; who does not will look before it does."""
        return self._waiting is not None

    def wake(self) -> None:
        """There may be something new (called by the stream)."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def offer(self, notice: Transient) -> None:
        """Take a transient notice (called by the stream); joined with the last one where that is the same text."""
        if not self._wants_notices:
            return
        after = self._stream.last_id
        if not isinstance(self._notices, deque):  # an empty one takes a kilobyte, and most readers want none
            self._notices = deque()
        if self._notices and self._notices[-1].after == after:
            joined = _joined(self._notices[-1].notice, notice)
            if joined is not None:
                self._notices[-1] = _Pending(after, joined)
                self.wake()
                return
        self._notices.append(_Pending(after, notice))
        if len(self._notices) > MAX_PENDING_NOTICES:
            self._notices.popleft()
        self.wake()


def _joined(first: Transient, second: Transient) -> Transient | None:
    match first, second:
        case TextDelta(), TextDelta() if (first.response_id, first.channel) == (second.response_id, second.channel):
            return replace(first, text=(first.text + second.text)[-MAX_DELTA_CHARS:])
        case OutputDelta(), OutputDelta() if first.cause == second.cause:
            return replace(first, text=(first.text + second.text)[-MAX_DELTA_CHARS:])
    return None
