"""Calls that have no answer."""

from __future__ import annotations

from collections.abc import Iterable

from agent_core.events.event import UNSTORED, Event
from agent_core.events.llm_events import ActionEvent, AgentErrorEvent, ObservationEvent, UserRejectObservation


def get_unmatched_actions(events: Iterable[Event]) -> list[ActionEvent]:
    """Of the `events` of a branch, in their order, the calls that can be carried out and were not answered."""
    waiting: dict[int, ActionEvent] = {}
    for event in events:
        if isinstance(event, ActionEvent) and event.action is not None:
            waiting[event.id] = event
        elif isinstance(event, ObservationEvent | UserRejectObservation | AgentErrorEvent):
            waiting.pop(_answered(event, waiting), None)
    return list(waiting.values())


def _answered(
    event: ObservationEvent | UserRejectObservation | AgentErrorEvent, waiting: dict[int, ActionEvent]
) -> int:
    """The id of the call; an error may name only the id that the model gave it."""
    if event.cause is not None:
        return event.cause
    return next((call.id for call in waiting.values() if call.tool_call_id == event.tool_call_id), UNSTORED)
