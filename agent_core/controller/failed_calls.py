"""Calls of an answer that could not be understood: their errors, and their place beside what a user is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from agent_core.events.classification import ErrorClassification
from agent_core.events.llm_events import ActionEvent, AgentErrorEvent
from agent_core.events.serialization import AnyEvent

_UNSAID: Final[dict[str, Any]] = {"thought": [], "reasoning_content": None, "thinking_blocks": []}
"""What only the first call of an answer carries, in all others."""


def error_for(call: AnyEvent, text: str) -> AgentErrorEvent:
    """The answer to a call that could not be understood.

    Raises:
        TypeError: it is no call.
    """
    if not isinstance(call, ActionEvent):
        raise TypeError(f"only calls are answered by errors, not {call.kind}")
    return AgentErrorEvent(
        cause=call.id,
        error=text,
        tool_name=call.tool_name,
        tool_call_id=call.tool_call_id,
        classification=ErrorClassification.AGENT_ACTION,
    )


def failed_first(events: Sequence[AnyEvent], places: Sequence[int]) -> tuple[list[AnyEvent], list[AnyEvent]]:
    """The calls of an answer at these places, and all others; the first of them all carries what was said with them.

    The calls of one answer are made at the same time: their order says nothing to the model.
    """
    failed = [events[place] for place in places]
    others = [event for place, event in enumerate(events) if place not in places]
    if failed and others and places[0] != 0:
        failed[0], others[0] = _said_with(failed[0], others[0])
    return failed, others


def _said_with(call: AnyEvent, first: AnyEvent) -> tuple[AnyEvent, AnyEvent]:
    said = {name: getattr(first, name) for name in _UNSAID}
    return call.model_copy(update=said), first.model_copy(update=_UNSAID)
