"""System prompts are long, and mostly the same in many conversations: equal ones are kept once in the process."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from agent_core.events.llm_events import SystemPromptEvent
from agent_core.events.messages import TextContent

KEPT = 32
"""How many different prompts (and sets of tools) are remembered, to be shared by later conversations."""


def shared(event: SystemPromptEvent) -> SystemPromptEvent:
    """An equal event whose text and tools are those of an earlier one, where there was one."""
    return event.model_copy(update={"system_prompt": _text(event.system_prompt), "tools": shared_tools(event.tools)})


def shared_tools(schemas: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Equal schemas of tools, those that were seen first; not to be changed."""
    return _tools(json.dumps(schemas))


@lru_cache(maxsize=KEPT)
def shared_text(text: str) -> str:
    """An equal text, the one that was seen first."""
    return text


@lru_cache(maxsize=KEPT)
def _text(content: TextContent) -> TextContent:
    return content


@lru_cache(maxsize=KEPT)
def _tools(tools: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(tools)
    return found
