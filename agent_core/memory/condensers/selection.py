"""Condensers that leave parts of a view out, without a summary."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Self

from pydantic import Field, model_validator

from agent_core.errors import LLMError, NoCondensationError
from agent_core.events.control import Condensation, RecallObservation
from agent_core.events.llm_events import CondensationSummaryEvent, MessageEvent, ObservationEvent, SystemPromptEvent
from agent_core.events.messages import Message
from agent_core.events.schema import Observation
from agent_core.llm.llm import LLM, AnyLLM, CallContext
from agent_core.memory.condenser import Condenser, Requirement, RollingCondenser
from agent_core.memory.cut_positions import together
from agent_core.memory.transcript import ViewEvent, as_text, shortened
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


MAX_EVENT_LENGTH: Final = 10_000

PROMPT: Final = """You choose what an agent keeps in mind of its work. Below are the events so far, each with its id.
Order the ids by how much the event matters for what the agent has still to do, the most important first: what the user
wants, decisions, results that are still needed, failures not to be repeated. Leave out what does not matter.
Answer with JSON alone: {"ids": [...]}.
"""

SCHEMA: Final[dict[str, Any]] = {
    "type": "json_schema",
    "json_schema": {
        "name": "ranking",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {"ids": {"type": "array", "items": {"type": "integer"}}},
            "required": ["ids"],
            "additionalProperties": False,
        },
    },
}


class LLMAttentionCondenser(AmortizedForgettingCondenser):
    """Keeps the first `keep_first` events, and of the others those that `llm` finds most important.

    About half of `max_size` is left; where the model names too few, the newest fill up. `llm` must support structured
    output.
    """

    config_types: ClassVar[Mapping[str, Mapping[str, Any]]] = {"llm_attention": {}}

    llm: AnyLLM

    @model_validator(mode="after")
    def _keeps_a_form(self) -> Self:
        if self.llm.features.response_schema is False:
            raise ValueError(f"llm: {self.llm.model} cannot answer in a given form; use another model")
        return self

    async def condensation(self, view: View, agent_llm: LLM | None, context: CallContext | None) -> Condensation:
        cuts = view.cut_positions()
        try:
            start = cuts.find_next(self.keep_first)
        except ValueError as error:
            raise NoCondensationError(str(error)) from error
        head = {event.id for event in view.events[:start]} | view.unread()
        open_end = {event.id for event in view.events[max(cuts) :]}
        ranking, response_id = await self._ranking(view, context)
        newest = [event.id for event in reversed(view.events)]
        kept = head | open_end
        wanted = max(len(kept) + 1, min(len(view), self.max_size) // 2)
        there = set(newest)
        named = [one for one in ranking if isinstance(one, int) and not isinstance(one, bool) and one in there]
        for event_id in dict.fromkeys([*named, *newest]):
            if len(kept) >= wanted:
                break
            kept.add(event_id)
        kept = together(view.events, kept)
        forgotten = [event.id for event in view.events if event.id not in kept]
        if not forgotten:
            raise NoCondensationError(f"of {len(view)} events none can be spared")
        told = {"condenser": self.kind, "model": self.llm.model, "usage_id": self.llm.usage_id}
        return Condensation(forgotten_event_ids=forgotten, llm_response_id=response_id, metadata=told)

    async def _ranking(self, view: View, context: CallContext | None) -> tuple[list[Any], str]:
        events = "\n".join(
            f"<EVENT id={event.id}>\n{shortened(as_text(event), MAX_EVENT_LENGTH)}\n</EVENT>" for event in view.events
        )
        try:
            response = await self.llm.acompletion(
                [Message.user(f"{PROMPT}\n{events}")], context=context, response_format=SCHEMA
            )
        except LLMError as error:
            raise NoCondensationError(f"the ranking could not be had: {error}") from error
        text = response.message.text
        try:
            found = json.loads(text[text.index("{") : text.rindex("}") + 1])["ids"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise NoCondensationError(f"the ranking cannot be read: {text[:80]!r}") from None
        return (found if isinstance(found, list) else []), response.id


class ConversationWindowCondenser(RollingCondenser):
    """On requests only, and without a model: forgets the older half of what is not essential.

    Essential are the system prompt, the user's first message, the facts recalled for it, and a summary. Without a
    message or a summary nothing is forgotten.
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
    firsts: dict[type[ViewEvent], int] = {}
    for index, event in enumerate(events):
        is_users = isinstance(event, MessageEvent) and event.source == "user"
        if is_users or isinstance(event, SystemPromptEvent | RecallObservation | CondensationSummaryEvent):
            firsts.setdefault(type(event), index)
    return set(firsts.values())


class MaskingCondenser(Condenser):
    """Replaces the content of observations before the newest `attention_window`; each stays the result of its call."""

    attention_window: int = Field(ge=0)

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
    """Masks what the browser showed, but for its address and the newest `attention_window` times."""

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
