"""Events as text for a summarising model, and what they weigh."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from agent_core.events.control import RecallObservation
from agent_core.events.llm_events import ActionEvent, SystemPromptEvent
from agent_core.memory.facts import facts_message
from agent_core.memory.transcript import ViewEvent

CHARACTERS_PER_TOKEN = 4


def as_text(event: ViewEvent) -> str:
    """What an event says, with who says it."""
    if isinstance(event, ActionEvent):
        call = event.tool_call.arguments if event.tool_call is not None else str(event.action)
        return f"{event.source} calls {event.tool_name} {call}\n{event.thought_text}".rstrip()
    if isinstance(event, RecallObservation):
        facts = facts_message(event)
        return f"facts: {facts.text if facts is not None else ''}"
    if isinstance(event, SystemPromptEvent):
        return f"system: {event.system_prompt.text}"
    message = event.to_llm_message()
    return f"{message.role}: {message.text}"


def tagged(texts: Iterable[str]) -> str:
    """Texts one after the other, each between marks."""
    return "\n".join(f"<EVENT>\n{text}\n</EVENT>" for text in texts)


def shortened(text: str, limit: int) -> str:
    """`text` cut in its middle to `limit` characters, saying so."""
    notice = "\n[… cut …]\n"
    if len(text) <= limit:
        return text
    if limit <= len(notice):
        return text[:limit]
    head = (limit - len(notice) + 1) // 2
    tail = limit - len(notice) - head
    return text[:head] + notice + text[len(text) - tail :]


def weight(event: ViewEvent) -> int:
    """Its size in characters; a system prompt weighs what its tools do too."""
    tools = len(json.dumps(event.tools)) if isinstance(event, SystemPromptEvent) and event.tools else 0
    return len(as_text(event)) + tools


def token_estimate(events: Sequence[ViewEvent]) -> int:
    """About how many tokens they are: four characters make one (REC)."""
    return sum(map(weight, events)) // CHARACTERS_PER_TOKEN
