"""All condensers that there are, so that each is known by its name wherever agents are made or read back."""

from __future__ import annotations

from agent_core.llm.llm import LLM
from agent_core.memory.condenser import AnyCondenser, Condenser, NoOpCondenser, PipelineCondenser
from agent_core.memory.condensers.selection import (
    AmortizedForgettingCondenser,
    BrowserOutputCondenser,
    ConversationWindowCondenser,
    LLMAttentionCondenser,
    ObservationMaskingCondenser,
    RecentEventsCondenser,
)
from agent_core.memory.condensers.summary import LLMSummarizingCondenser, StructuredSummaryCondenser

__all__ = ["CONDENSERS", "AnyCondenser", "Condenser"]

CONDENSERS: tuple[type[Condenser], ...] = (
    NoOpCondenser,
    PipelineCondenser,
    ObservationMaskingCondenser,
    BrowserOutputCondenser,
    RecentEventsCondenser,
    AmortizedForgettingCondenser,
    LLMSummarizingCondenser,
    LLMAttentionCondenser,
    StructuredSummaryCondenser,
    ConversationWindowCondenser,
)


USAGE_ID = "condenser"
DEFAULT_MAX_SIZE = 120
KEEP_FIRST = 4
"""The system prompt, the user's first message, the facts recalled for it, and what came first after that."""


def condenser_llm(llm: LLM) -> LLM:
    """The same model, with its cost counted apart; its prompts are never the same twice, so none is cached."""
    apart = llm.model_copy(update={"usage_id": USAGE_ID, "caching_prompt": False})
    apart.reset_metrics()
    return apart


def get_default_condenser(llm: LLM, max_size: int | None = None) -> Condenser:
    """What a conversation of the server gets: requests first, then old pages of the browser, then summaries."""
    return PipelineCondenser(
        condensers=[
            ConversationWindowCondenser(),
            BrowserOutputCondenser(attention_window=2),
            LLMSummarizingCondenser(
                llm=condenser_llm(llm), keep_first=KEEP_FIRST, max_size=max_size or DEFAULT_MAX_SIZE
            ),
        ]
    )
