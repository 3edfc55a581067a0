"""Catalog of condensers: importing it registers all of ours; and those used by default."""

from __future__ import annotations

from agent_core.llm.llm import LLM
from agent_core.memory.condenser import AnyCondenser as AnyCondenser
from agent_core.memory.condenser import Condenser, PipelineCondenser
from agent_core.memory.condensers.selection import BrowserOutputCondenser, ConversationWindowCondenser
from agent_core.memory.condensers.summary import LLMSummarizingCondenser

USAGE_ID = "condenser"
DEFAULT_MAX_SIZE = 120
KEEP_FIRST = 4
"""The system prompt, the user's first message, the facts recalled for it, and one more."""


def condenser_llm(llm: LLM) -> LLM:
    """The same model, counted apart, and without caching: no prompt comes twice."""
    apart = llm.model_copy(update={"usage_id": USAGE_ID, "caching_prompt": False})
    apart.reset_metrics()
    return apart


def get_default_condenser(llm: LLM, max_size: int | None = None) -> Condenser:
    """The server's condenser: requests first, then old pages of the browser, then summaries."""
    return PipelineCondenser(
        condensers=[
            ConversationWindowCondenser(),
            BrowserOutputCondenser(attention_window=2),
            LLMSummarizingCondenser(
                llm=condenser_llm(llm), keep_first=KEEP_FIRST, max_size=max_size or DEFAULT_MAX_SIZE
            ),
        ]
    )
