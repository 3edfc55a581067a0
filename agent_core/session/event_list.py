"""A conversation's events like a list, read from its log when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from agent_core.events.serialization import AnyEvent, from_payload
from agent_core.runtime.loop_thread import library_loop
from agent_core.session.conversation_log import ConversationLog
from agent_core.session.status import is_bookkeeping

PAGE = 200


class Events(Sequence[AnyEvent]):
    """What was said and done, in its order.

    What the log has besides (states, questions to the memory, sums of costs) is left out, unless it is `whole`.
    """

    def __init__(self, log: ConversationLog, *, whole: bool = False) -> None:
        self._log = log
        self._whole = whole

    def __len__(self) -> int:
        return len(self._ids())

    @overload
    def __getitem__(self, index: int) -> AnyEvent: ...
    @overload
    def __getitem__(self, index: slice) -> list[AnyEvent]: ...
    def __getitem__(self, index: int | slice) -> AnyEvent | list[AnyEvent]:
        ids = self._ids()
        if isinstance(index, slice):
            return [self._read(event_id, 1)[0] for event_id in ids[index]]
        if not -len(ids) <= index < len(ids):
            raise IndexError(f"event {index} of {len(ids)}")
        return self._read(ids[index], 1)[0]

    def __iter__(self) -> Iterator[AnyEvent]:
        position = 0
        while page := self._read(position, PAGE):
            yield from (event for event in page if self._whole or not is_bookkeeping(event))
            position = page[-1].id + 1

    def _ids(self) -> Sequence[int]:
        return library_loop().run(self._known())

    async def _known(self) -> Sequence[int]:
        fold = await self._log.present()
        return range(fold.last_id + 1) if self._whole else fold.shown

    def _read(self, start: int, count: int) -> list[AnyEvent]:
        stored = library_loop().run(self._log.store.read(self._log.conversation_id, after=start - 1, limit=count))
        return [from_payload(record.payload, record.id) for record in stored]
