"""What no model goes without, whatever was forgotten: its system prompt and the user's first words."""

from __future__ import annotations

from collections.abc import Sequence

from agent_core.events.llm_events import CondensationSummaryEvent, MessageEvent, SystemPromptEvent
from agent_core.memory.transcript import ViewEvent


class Opening:
    """The beginning of a conversation. A summary stands for the user's words; nothing stands for the system prompt."""

    def __init__(self) -> None:
        self._prompt: SystemPromptEvent | None = None
        self._said: MessageEvent | None = None

    def note(self, event: ViewEvent) -> None:
        """Take the next event into account; the first of each kind counts."""
        match event:
            case SystemPromptEvent() if self._prompt is None:
                self._prompt = event
            case MessageEvent(source="user") if self._said is None:
                self._said = event

    def withdraw(self, message_id: int, left: Sequence[ViewEvent]) -> None:
        """This message counts as not said; `left` are the events without it."""
        if self._said is not None and self._said.id == message_id:
            said = (event for event in left if isinstance(event, MessageEvent) and event.source == "user")
            self._said = next(said, None)

    def before(self, events: Sequence[ViewEvent]) -> Sequence[ViewEvent]:
        """The events, and before them what is not among them any more."""
        said = self._said
        if said is not None and any(_stands_for(event, said) for event in events):
            said = None
        has_prompt = any(isinstance(event, SystemPromptEvent) for event in events)
        prompt = None if has_prompt else self._prompt
        if prompt is None and said is None:
            return events
        place = 1 if events and isinstance(events[0], SystemPromptEvent) else 0
        first = [one for one in (prompt, said) if one is not None]
        return [*events[:place], *first, *events[place:]]


def _stands_for(event: ViewEvent, said: MessageEvent) -> bool:
    return isinstance(event, CondensationSummaryEvent) or event.id == said.id
