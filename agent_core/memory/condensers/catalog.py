"""All condensers that there are, so that each is known by its name wherever agents are made or read back."""

from __future__ import annotations

from agent_core.memory.condenser import AnyCondenser, Condenser, NoOpCondenser, PipelineCondenser
from agent_core.memory.condensers.attention import LLMAttentionCondenser
from agent_core.memory.condensers.forgetting import AmortizedForgettingCondenser, RecentEventsCondenser
from agent_core.memory.condensers.masking import BrowserOutputCondenser, ObservationMaskingCondenser
from agent_core.memory.condensers.structured import StructuredSummaryCondenser
from agent_core.memory.condensers.summarizing import LLMSummarizingCondenser
from agent_core.memory.condensers.window import ConversationWindowCondenser

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
