"""`ConversationWindowCondenser`: when asked, forgets the older half of what is not essential (agent-core 5.8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from agent_core.events.control import Condensation, RecallObservation
from agent_core.events.llm_events import MessageEvent, SystemPromptEvent
from agent_core.llm.llm import LLM, CallContext
from agent_core.memory.condenser import NoCondensationError, Requirement, RollingCondenser
from agent_core.memory.view import View


class ConversationWindowCondenser(RollingCondenser):
    """Acts on requests only, and without a model.

    Always kept: the system prompt, the user's first message, and the facts that were recalled for it. Of the rest the
    newer half stays, from the next place where the view may be cut.
    """

    handles_requests: ClassVar[bool] = True
    config_types: ClassVar[Mapping[str, Mapping[str, Any]]] = {"conversation_window": {}}

    def requirement(self, view: View, agent_llm: LLM | None) -> Requirement | None:
        return Requirement.HARD if view.wants_condensation else None

    async def condensation(self, view: View, agent_llm: LLM | None, context: CallContext | None) -> Condensation:
        first = _first_dispensable(view)
        dispensable = len(view) - first
        cuts = view.cut_positions()
        try:
            start = cuts.find_next(first)
            end = cuts.find_next(len(view) - max(1, dispensable // 2))
        except ValueError as error:
            raise NoCondensationError(str(error)) from error
        if end <= start:
            raise NoCondensationError(f"of {len(view)} events none can be spared")
        return Condensation(forgotten_event_ids=[event.id for event in view.events[start:end]])


def _first_dispensable(view: View) -> int:
    """Index after the essential events at the beginning."""
    index = 0
    for kind in (SystemPromptEvent, MessageEvent, RecallObservation):
        if index < len(view) and isinstance(view.events[index], kind):
            index += 1
    return index
