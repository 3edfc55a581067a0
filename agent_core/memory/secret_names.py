"""Which of a conversation's secrets its agent has heard of: those that came later are told with the next message."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from agent_core.events.control import Condensation, RecallObservation
from agent_core.events.llm_events import SystemPromptEvent
from agent_core.events.serialization import AnyEvent

_VARIABLE: Final = re.compile(r"- \$(\w+)")
"""How a secret is named wherever a model is told of it."""


class SecretNames:
    """The names and descriptions of the secrets; the system message tells those of its time."""

    def __init__(self, current: Callable[[], Mapping[str, str]]) -> None:
        self._current = current
        self._told: dict[str, int] = {}

    def observe(self, event: AnyEvent) -> None:
        """Remember what was told by now, and what was forgotten."""
        if isinstance(event, SystemPromptEvent):
            self._note(event, event.dynamic_context.text if event.dynamic_context is not None else "")
        elif isinstance(event, RecallObservation):
            self._note(event, event.additional_agent_instructions)
            if event.recall_type == "knowledge":
                self._told.update((name, event.id) for name in event.custom_secrets_descriptions)
        elif isinstance(event, Condensation):
            forgotten = set(event.forgotten_event_ids)
            self._told = {name: place for name, place in self._told.items() if place not in forgotten}

    def _note(self, event: AnyEvent, text: str) -> None:
        self._told.update((name, event.id) for name in _VARIABLE.findall(text))

    def forget_told(self) -> None:
        """Nothing was told yet: what counts is observed anew."""
        self._told.clear()

    @property
    def known(self) -> dict[str, str]:
        """All that there are now: descriptions by name."""
        return dict(self._current())

    @property
    def untold(self) -> dict[str, str]:
        """Those of them that the agent has not heard of."""
        return {name: text for name, text in self._current().items() if name not in self._told}
