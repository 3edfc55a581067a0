"""`LLMAttentionCondenser`: a model says which events matter most; the others are forgotten."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final, Self

from pydantic import model_validator

from agent_core.errors import LLMError, NoCondensationError
from agent_core.events.control import Condensation
from agent_core.events.messages import Message
from agent_core.llm.llm import LLM, AnyLLM, CallContext
from agent_core.memory.condensers.forgetting import AmortizedForgettingCondenser
from agent_core.memory.digest import as_text, shortened
from agent_core.memory.view import View
from agent_core.memory.wholeness import together

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

    About half of `max_size` is left. What belongs together stays together; where the model names too few, the newest
    fill up. `llm` must be able to answer in a given form.
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
        for event_id in dict.fromkeys([*_known(ranking, view), *newest]):
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
        """What the model names, and the id of its response.

        Raises:
            NoCondensationError: it could not be asked, or its answer cannot be read.
        """
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


def _known(ranking: Iterable[Any], view: View) -> list[int]:
    there = {event.id for event in view.events}
    return [one for one in ranking if isinstance(one, int) and not isinstance(one, bool) and one in there]
