"""What an agent answered in the end."""

from __future__ import annotations

from collections.abc import Sequence

from agent_core.events.event import Event
from agent_core.events.llm_events import ActionEvent, MessageEvent
from agent_core.tools.finish import FinishAction


def get_agent_final_response(events: Sequence[Event]) -> str:
    """Of a conversation's `events`, what its agent told its user last: with `finish`, or else in words.

    A structured answer is its JSON. Empty where the agent has said nothing.
    """
    for event in reversed(events):
        if isinstance(event, ActionEvent) and event.source == "agent" and isinstance(event.action, FinishAction):
            return event.action.message
        if isinstance(event, MessageEvent) and event.source == "agent" and not event.is_blank:
            return event.llm_message.text
    return ""
