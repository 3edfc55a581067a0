"""Condensers that hide what old observations say: all of them, or those of the browser."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from agent_core.events.control import Condensation
from agent_core.events.llm_events import ObservationEvent
from agent_core.events.schema import Observation
from agent_core.llm.llm import LLM, CallContext
from agent_core.memory.condenser import Condenser
from agent_core.memory.transcript import ViewEvent
from agent_core.memory.view import View


class MaskingCondenser(Condenser):
    """Replaces the content of observations; each stays the result of its call."""

    attention_window: int = Field(ge=0)
    """How many of the newest are left as they are."""

    async def acondense(
        self, view: View, agent_llm: LLM | None = None, context: CallContext | None = None
    ) -> View | Condensation:
        masks = self.masks(view.events)
        if not masks:
            return view
        return view.showing(_masked(event, masks.get(index)) for index, event in enumerate(view.events))

    @abstractmethod
    def masks(self, events: list[ViewEvent]) -> dict[int, str]:
        """The text that stands for each observation to be masked, by its index."""


class ObservationMaskingCondenser(MaskingCondenser):
    """Masks every observation that is not among the newest `attention_window` events."""

    config_types: ClassVar[Mapping[str, Mapping[str, Any]]] = {"observation_masking": {}}

    attention_window: int = Field(default=100, ge=0)

    def masks(self, events: list[ViewEvent]) -> dict[int, str]:
        old = events[: max(0, len(events) - self.attention_window)]
        return {index: "<MASKED>" for index, event in enumerate(old) if isinstance(event, ObservationEvent)}


class BrowserOutputCondenser(MaskingCondenser):
    """Masks what the browser showed, except for the newest `attention_window` times; the address stays."""

    config_types: ClassVar[Mapping[str, Mapping[str, Any]]] = {"browser_output_masking": {}}

    attention_window: int = Field(default=1, ge=0)

    def masks(self, events: list[ViewEvent]) -> dict[int, str]:
        shown = [
            index
            for index, event in enumerate(events)
            if isinstance(event, ObservationEvent) and _is_of_browser(event.tool_name)
        ]
        old = shown[: max(0, len(shown) - self.attention_window)]
        return {index: f"Visited {_address(events[index])}. What the page showed is left out here." for index in old}


def _is_of_browser(tool_name: str) -> bool:
    return tool_name.startswith("browser") and tool_name[7:8] in ("", "_")


def _address(event: ViewEvent) -> str:
    seen = getattr(event, "observation", None)
    return getattr(seen, "url", "") or "a page"


def _masked(event: ViewEvent, text: str | None) -> ViewEvent:
    if text is None or not isinstance(event, ObservationEvent):
        return event
    return event.model_copy(update={"observation": Observation.from_text(text)})
