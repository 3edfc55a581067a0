"""Cut positions of a view: calls and results, batches of calls, and loops of thinking stay whole."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from agent_core.events.llm_events import ActionEvent, AgentErrorEvent, ObservationEvent, UserRejectObservation
from agent_core.memory.transcript import ViewEvent

_ANSWERS = (ObservationEvent, UserRejectObservation, AgentErrorEvent)


class CutPositions:
    """The indices of a view between which stretches may be taken out, and at which something may be put in."""

    def __init__(self, events: Sequence[ViewEvent]) -> None:
        forbidden: set[int] = set()
        answered = {event.cause for event in events if isinstance(event, _ANSWERS)}
        for group in filter(None, _groups(events)):
            waits = any(isinstance(events[i], ActionEvent) and events[i].id not in answered for i in group)
            forbidden.update(range(min(group) + 1, (len(events) if waits else max(group)) + 1))
        self._end = len(events)
        self._positions = [index for index in range(len(events) + 1) if index not in forbidden]

    def __contains__(self, index: object) -> bool:
        return index in self._positions

    def __iter__(self) -> Iterator[int]:
        return iter(self._positions)

    def find_next(self, threshold: int) -> int:
        """The smallest position that is not below `threshold`; raises `ValueError` where there is none."""
        found = bisect_left(self._positions, threshold)
        if found == len(self._positions):
            raise ValueError(f"there is no cut position at or after index {threshold}")
        return self._positions[found]

    def find_tail(self, threshold: int) -> int:
        """Like `find_next`, but rather before `threshold` than at the end, so that the tail has something in it."""
        found = self.find_next(threshold)
        is_empty = threshold < found == self._end
        return self._positions[-2] if is_empty else found


def together(events: Sequence[ViewEvent], chosen: set[int]) -> set[int]:
    """The ids that are kept, with those of all events that may not be torn from them."""
    groups = [{events[index].id for index in group} for group in _groups(events)]
    whole = set(chosen)
    changed = True
    while changed:
        changed = False
        for group in groups:
            if not group.isdisjoint(whole) and not group <= whole:
                whole |= group
                changed = True
    return whole


def belongs_to_batch(call: ActionEvent, batch: Sequence[ActionEvent]) -> bool:
    """Whether a call is one more of the batch: some servers give each of their responses the same id."""
    has_room = not is_whole(batch) or (call.llm_response_id != "" and batch[0].calls_in_response == 0)
    return call.llm_response_id == batch[0].llm_response_id and has_room


def is_whole(batch: Sequence[ActionEvent]) -> bool:
    """Whether all calls of the response are there."""
    return len(batch) >= batch[0].calls_in_response


def _groups(events: Sequence[ViewEvent]) -> Iterator[list[int]]:
    """Indices that stay or go together: batches with their answers, the user's own commands, and loops."""
    yield from _calls(events)
    loop: list[int] = []
    for index, event in enumerate(events):
        if isinstance(event, ActionEvent) and event.thinking_blocks:
            yield loop
            loop = [index]
        elif loop and isinstance(event, (ActionEvent, *_ANSWERS)):
            loop.append(index)
        else:
            yield loop
            loop = []
    yield loop


def _calls(events: Sequence[ViewEvent]) -> Iterator[list[int]]:
    groups: list[list[int]] = []
    owner: dict[int, list[int]] = {}
    batch: list[ActionEvent] = []
    for index, event in enumerate(events):
        if isinstance(event, ActionEvent):
            if event.tool_call is not None and batch and belongs_to_batch(event, batch):
                group = owner[batch[0].id]
            else:
                group = []
                groups.append(group)
                batch = [] if event.tool_call is not None else batch
            if event.tool_call is not None:
                batch.append(event)
            group.append(index)
            owner[event.id] = group
        elif isinstance(event, _ANSWERS) and event.cause in owner:
            owner[event.cause].append(index)
    return iter(groups)
