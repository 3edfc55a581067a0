"""Reads the branch of a log that counts, as far as it is needed, and anew after a rewind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from agent_core.errors import StreamClosedError
from agent_core.events.branches import Branches, read_branch
from agent_core.events.serialization import AnyEvent
from agent_core.events.stream import EventStream


class BranchReader:
    """Shows each event of the active branch once, in order, to `see`; before it begins again it calls `forget`."""

    def __init__(self, stream: EventStream, see: Callable[[AnyEvent], None], forget: Callable[[], None]) -> None:
        self._stream = stream
        self._see = see
        self._forget = forget
        self._unread = stream.subscribe(after=-1)
        self._branches = Branches()
        self._shown_of = 0

    @contextmanager
    def following(self) -> Iterator[None]:
        """Within this, the stream keeps what is still to be read."""
        self._stream.attach(self._unread)
        try:
            yield
        finally:
            self._stream.detach(self._unread)

    async def read(self, *, until: int) -> None:
        """Go on to the event of the id `until`.

        Raises:
            StreamClosedError: there is no log any more.
            EventStoreError: it cannot be read.
        """
        while self._unread.position < until:
            event = await anext(self._unread, None)
            if event is None:
                raise StreamClosedError(f"the log of conversation {self._stream.conversation_id} is gone")
            counts = self._branches.fold(event)  # type: ignore[arg-type] # no notices were asked for
            if counts and self._branches.rewinds == self._shown_of:
                self._see(event)  # type: ignore[arg-type] # likewise
        if self._branches.rewinds != self._shown_of:
            self._forget()
            async for event in read_branch(self._stream, self._branches):
                self._see(event)
            self._shown_of = self._branches.rewinds  # only now: who is cancelled before begins anew
