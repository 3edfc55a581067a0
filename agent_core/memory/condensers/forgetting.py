"""Condensers that forget without a summary: all but the newest, or the middle when it grows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from agent_core.errors import NoCondensationError
from agent_core.events.control import Condensation
from agent_core.llm.llm import LLM, CallContext
from agent_core.memory.condenser import Condenser, Requirement, RollingCondenser
from agent_core.memory.view import View


class RecentEventsCondenser(Condenser):
    """Shows the first `keep_first` events and the newest, `max_events` in all (or less, where some belong together)."""

    config_types: ClassVar[Mapping[str, Mapping[str, Any]]] = {"recent": {}}

    keep_first: int = Field(default=1, ge=0)
    max_events: int = Field(default=100, ge=1)

    async def acondense(
        self, view: View, agent_llm: LLM | None = None, context: CallContext | None = None
    ) -> View | Condensation:
        if len(view) <= self.max_events:
            return view
        cuts = view.cut_positions()
        try:
            start = cuts.find_next(self.keep_first)
            end = max(start, cuts.find_tail(len(view) - max(0, self.max_events - start)))
        except ValueError:
            return view  # calls at the end are still open
        kept_back = view.unread()
        middle = (event for event in view.events[start:end] if event.id in kept_back)
        return view.showing([*view.events[:start], *middle, *view.events[end:]])


class AmortizedForgettingCondenser(RollingCondenser):
    """Forgets the middle once the view is longer than `max_size`, so that half of it is left."""

    config_types: ClassVar[Mapping[str, Mapping[str, Any]]] = {"amortized": {}}

    max_size: int = Field(default=100, ge=1)
    keep_first: int = Field(default=1, ge=0)

    @model_validator(mode="after")
    def _leaves_a_tail(self) -> Self:
        if self.keep_first >= self.max_size // 2:
            raise ValueError(f"keep_first: {self.keep_first} must be less than half of max_size {self.max_size}")
        return self

    def requirement(self, view: View, agent_llm: LLM | None) -> Requirement | None:
        if view.wants_condensation:
            return Requirement.HARD
        return Requirement.SOFT if len(view) > self.max_size else None

    async def condensation(self, view: View, agent_llm: LLM | None, context: CallContext | None) -> Condensation:
        size = min(len(view), self.max_size)
        cuts = view.cut_positions()
        try:
            start = cuts.find_next(self.keep_first)
            end = cuts.find_tail(len(view) - max(1, size // 2 - start))
        except ValueError as error:
            raise NoCondensationError(str(error)) from error
        kept_back = view.unread()
        forgotten = [event.id for event in view.events[start:end] if event.id not in kept_back]
        if not forgotten:
            raise NoCondensationError(f"of {len(view)} events none can be spared")
        return Condensation(forgotten_event_ids=forgotten)
