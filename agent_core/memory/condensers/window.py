"""`ConversationWindowCondenser`: when asked, forgets the older half of what is not essential."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from agent_core.errors import NoCondensationError
from agent_core.events.control import Condensation, RecallObservation
from agent_core.events.llm_events import CondensationSummaryEvent, MessageEvent, SystemPromptEvent
from agent_core.llm.llm import LLM, CallContext
from agent_core.memory.condenser import Requirement, RollingCondenser
from agent_core.memory.transcript import ViewEvent
from agent_core.memory.view import View


class ConversationWindowCondenser(RollingCondenser):
    """Acts on requests only, and without a model.

    Always kept: the system prompt, the user's first message, the facts that were recalled for it, and a summary, which
    has what is not in the view any more. Of the rest the newer half stays, from the next place where the view may be
    cut. Without a message of the user, or a summary, it cannot be told what the task is, so nothing is forgotten.
    """

    handles_requests: ClassVar[bool] = True
    config_types: ClassVar[Mapping[str, Mapping[str, Any]]] = {"conversation_window": {}}

    def requirement(self, view: View, agent_llm: LLM | None) -> Requirement | None:
        return Requirement.HARD if view.wants_condensation else None

    async def condensation(self, view: View, agent_llm: LLM | None, context: CallContext | None) -> Condensation:
        essential = _essential(view.events)
        if not any(isinstance(view.events[index], MessageEvent | CondensationSummaryEvent) for index in essential):
            raise NoCondensationError("there is no message of the user")
        kept = max(1, (len(view) - len(essential)) // 2)
        try:
            end = view.cut_positions().find_next(len(view) - kept)
        except ValueError as error:
            raise NoCondensationError(str(error)) from error
        kept_back = view.unread()
        forgotten = [
            event.id
            for index, event in enumerate(view.events[:end])
            if index not in essential and event.id not in kept_back
        ]
        if not forgotten:
            raise NoCondensationError(f"of {len(view)} events none can be spared")
        return Condensation(forgotten_event_ids=forgotten)


def _essential(events: Sequence[ViewEvent]) -> set[int]:
    """The indices of those that are always kept; each stands by itself, so what is between them can go."""
    firsts: dict[type[ViewEvent], int] = {}
    for index, event in enumerate(events):
        is_users = isinstance(event, MessageEvent) and event.source == "user"
        if is_users or isinstance(event, SystemPromptEvent | RecallObservation | CondensationSummaryEvent):
            firsts.setdefault(type(event), index)
    return set(firsts.values())
